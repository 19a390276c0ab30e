// One step of the simulator in plain C++, for every kind of number: doubles, and the types of automatic differentiation.
//
// The same mathematics as kernels/: articulated-body algorithm in world axes, implicit PD drives, spheres on the plane
// z = 0, projected Gauss-Seidel with Coulomb's cone, semi-implicit Euler. What the benchmark's robot does not use
// (springs, joint limits, saturated drives, other joints and shapes) is left out; the driver refuses such states.
// Spatial vectors are (angular, linear), about the world's origin. `value(x)` is the plain number behind an x.

#pragma once

#include <array>
#include <cmath>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "spatial.hpp"

struct Model {
    int links = 0, dofs = 0, positions = 0, drives = 0, spheres = 0, iterations = 0;
    double dt = 0, erp = 0, cfm = 0, max_push = 0;
    std::array<double, 3> gravity{};
    std::vector<int> parent, q_start, v_start;  // link 0 is the free root, the others hang on hinges
    std::vector<double> axis, joint_pos, joint_rot, mass, com, inertia;  // per link: 3, 3, 9, 1, 3, 9
    std::vector<double> armature, damping;                               // per dof
    std::vector<int> drive_dof, drive_q;
    std::vector<double> kp, kd;
    std::vector<int> sphere_link;
    std::vector<double> sphere_pos, radius, friction;

    explicit Model(const std::string& path) {
        std::ifstream in(path);
        if (!in) throw std::runtime_error(path + " cannot be read");
        in >> links >> dofs >> positions >> drives >> spheres >> iterations >> dt >> erp >> cfm >> max_push;
        for (double& g : gravity) in >> g;
        read(in, parent, links), read(in, q_start, links), read(in, v_start, links);
        read(in, axis, 3 * links), read(in, joint_pos, 3 * links), read(in, joint_rot, 9 * links);
        read(in, mass, links), read(in, com, 3 * links), read(in, inertia, 9 * links);
        read(in, armature, dofs), read(in, damping, dofs);
        read(in, drive_dof, drives), read(in, drive_q, drives), read(in, kp, drives), read(in, kd, drives);
        read(in, sphere_link, spheres), read(in, sphere_pos, 3 * spheres);
        read(in, radius, spheres), read(in, friction, spheres);
        if (!in) throw std::runtime_error(path + " ends too early");
    }

    int state() const { return positions + dofs; }

  private:
    template <class V> static void read(std::istream& in, V& values, int count) {
        values.resize(count);
        for (auto& value : values) in >> value;
    }
};

// The three rows of a contact on their way from its link to the root: one number per hinge passed, six at the root.
template <class T> struct Contact {
    int sphere;
    std::array<std::vector<T>, 3> u;  // S.f at every link of the path, from the contact's link on
    std::array<Vec6<T>, 3> root;      // solved with the root's factor
    std::array<T, 3> b, x;
};

template <class T> class Step {
  public:
    explicit Step(const Model& model) : m(model), n(model.links) {
        R.resize(n), p.resize(n), S.resize(n), v.resize(n), I.resize(n), U.resize(n), f.resize(n);
        D.resize(n), tau.resize(m.dofs), diagonal.resize(m.dofs), u.resize(n), qdd.resize(m.dofs);
    }

    // state: q then qd; replaced by the next one
    void operator()(std::vector<T>& state, const T* control) {
        const T* q = state.data();
        const T* qd = state.data() + m.positions;
        kinematics(q, qd);
        forces(q, qd, control);
        factorise_tree();
        contacts.clear();
        for (int k = 0; k < m.spheres; ++k) add_contact(k);
        solve_contacts();
        for (const auto& c : contacts) push(c);
        accelerations();
        integrate(state);
    }

    double penetration() const { return deepest; }

  private:
    const Model& m;
    const int n;
    std::vector<Mat3<T>> R;
    std::vector<Vec3<T>> p;
    std::vector<Vec6<T>> S, v, U, f;  // f: bias force of the subtree
    std::vector<Mat6<T>> I;           // articulated inertia
    std::vector<T> D, tau, diagonal, u, qdd;
    Vec6<T> root_u;
    Mat6<T> root_L;
    std::vector<Contact<T>> contacts;
    double deepest = 0.0;

    Vec6<T> root_column(int k) const {  // three velocities of the origin, three rates of turn
        Vec6<T> s;
        for (auto& x : s) x = T(0.0);
        if (k < 3) {
            s[3 + k] = T(1.0);
        } else {
            Vec3<T> e{T(0.0), T(0.0), T(0.0)};
            e[k - 3] = T(1.0);
            auto l = cross(p[0], e);
            for (int j = 0; j < 3; ++j) s[j] = e[j], s[3 + j] = l[j];
        }
        return s;
    }

    void kinematics(const T* q, const T* qd) {
        using std::cos;
        using std::sin;
        std::vector<Vec6<T>> a(n);  // acceleration at qdd = 0
        for (int i = 0; i < n; ++i) {
            if (i == 0) {
                p[0] = {q[0], q[1], q[2]};
                R[0] = rotation(q[3], q[4], q[5], q[6]);
                Vec3<T> w{qd[3], qd[4], qd[5]}, l{qd[0], qd[1], qd[2]};
                auto at = cross(p[0], w), turn = cross(l, w);
                v[0] = {w[0], w[1], w[2], l[0] + at[0], l[1] + at[1], l[2] + at[2]};
                a[0] = {T(0.0), T(0.0), T(0.0), turn[0], turn[1], turn[2]};
            } else {
                int up = m.parent[i];
                auto arm = turned(R[up], &m.joint_pos[3 * i]);
                for (int k = 0; k < 3; ++k) p[i][k] = p[up][k] + arm[k];
                const double* axis = &m.axis[3 * i];
                T half = 0.5 * q[m.q_start[i]], s = sin(half);
                T x = axis[0] * s, y = axis[1] * s, z = axis[2] * s, w = cos(half);
                Mat3<T> placed = product(R[up], &m.joint_rot[9 * i]), local = rotation(x, y, z, w);
                for (int r = 0; r < 3; ++r)
                    for (int c = 0; c < 3; ++c)
                        R[i][3 * r + c] = placed[3 * r] * local[c] + placed[3 * r + 1] * local[3 + c] +
                                          placed[3 * r + 2] * local[6 + c];
                auto e = turned(R[i], axis);
                auto l = cross(p[i], e);
                S[i] = {e[0], e[1], e[2], l[0], l[1], l[2]};
                T rate = qd[m.v_start[i]];
                Vec6<T> joint;
                for (int k = 0; k < 6; ++k) joint[k] = S[i][k] * rate;
                auto c = cross_motion(v[up], joint);
                for (int k = 0; k < 6; ++k) v[i][k] = v[up][k] + joint[k], a[i][k] = a[up][k] + c[k];
            }
            auto com = turned(R[i], &m.com[3 * i]);
            for (int k = 0; k < 3; ++k) com[k] += p[i][k];
            Mat3<T> RI = product(R[i], &m.inertia[9 * i]), world;
            for (int r = 0; r < 3; ++r)
                for (int c = 0; c < 3; ++c)
                    world[3 * r + c] = RI[3 * r] * R[i][3 * c] + RI[3 * r + 1] * R[i][3 * c + 1] + RI[3 * r + 2] * R[i][3 * c + 2];
            I[i] = spatial_inertia(m.mass[i], com, world);
            Vec3<T> weight{T(m.mass[i] * m.gravity[0]), T(m.mass[i] * m.gravity[1]), T(m.mass[i] * m.gravity[2])};
            auto moment = cross(com, weight);
            auto Ia = times(I[i], a[i]), gyro = cross_force(v[i], times(I[i], v[i]));
            for (int k = 0; k < 6; ++k) f[i][k] = Ia[k] + gyro[k] - (k < 3 ? moment[k] : weight[k - 3]);
        }
    }

    void forces(const T* q, const T* qd, const T* control) {
        for (int j = 0; j < m.dofs; ++j) {
            tau[j] = -m.damping[j] * qd[j];
            diagonal[j] = T(m.armature[j] + m.dt * m.damping[j]);
        }
        for (int k = 0; k < m.drives; ++k) {
            int j = m.drive_dof[k];
            double resist = m.dt * m.kp[k] + m.kd[k];
            tau[j] += m.kp[k] * (control[k] - q[m.drive_q[k]]) - resist * qd[j];
            diagonal[j] += m.dt * resist;
        }
        for (int i = n - 1; i > 0; --i) {  // bias forces, tips to root
            tau[m.v_start[i]] -= dot(S[i], f[i]);
            for (int k = 0; k < 6; ++k) f[m.parent[i]][k] += f[i][k];
        }
        for (int k = 0; k < 6; ++k) tau[k] -= dot(root_column(k), f[0]);
    }

    void factorise_tree() {  // Featherstone 7.3; u is the up pass of tau
        std::vector<Vec6<T>> pa(n);
        for (auto& row : pa)
            for (auto& x : row) x = T(0.0);
        for (int i = n - 1; i > 0; --i) {
            int j = m.v_start[i], up = m.parent[i];
            U[i] = times(I[i], S[i]);
            D[i] = dot(S[i], U[i]) + diagonal[j];
            u[i] = tau[j] - dot(S[i], pa[i]);
            T share = u[i] / D[i];
            for (int r = 0; r < 6; ++r) {
                T scaled = U[i][r] / D[i];
                for (int c = 0; c < 6; ++c) I[up][6 * r + c] += I[i][6 * r + c] - scaled * U[i][c];
                pa[up][r] += pa[i][r] + U[i][r] * share;
            }
        }
        for (int r = 0; r < 6; ++r) {
            auto column = root_column(r), moved = times(I[0], column);
            for (int c = 0; c <= r; ++c) root_L[6 * r + c] = dot(root_column(c), moved);
            root_L[7 * r] += diagonal[r];
            root_u[r] = tau[r] - dot(column, pa[0]);
        }
        factorise(root_L);
        root_u = forward_solve(root_L, root_u);
    }

    void add_contact(int sphere) {
        int link = m.sphere_link[sphere];
        auto c = turned(R[link], &m.sphere_pos[3 * sphere]);
        for (int k = 0; k < 3; ++k) c[k] += p[link][k];
        T gap = c[2] - m.radius[sphere];
        if (!(value(gap) < 0.0)) return;
        deepest = std::fmax(deepest, -value(gap));
        c[2] -= m.radius[sphere];
        Contact<T> contact;
        contact.sphere = sphere;
        for (int r = 0; r < 3; ++r) {  // normal z, tangents x and y
            Vec3<T> e{T(0.0), T(0.0), T(0.0)};
            e[r == 0 ? 2 : r - 1] = T(1.0);
            auto moment = cross(c, e);
            Vec6<T> F{moment[0], moment[1], moment[2], e[0], e[1], e[2]};
            T velocity = dot(F, v[link]), acceleration = T(0.0);
            for (int i = link; i > 0; i = m.parent[i]) {
                T s = dot(F, S[i]);
                contact.u[r].push_back(s);
                T scaled = s / D[i];
                acceleration += scaled * u[i];
                for (int k = 0; k < 6; ++k) F[k] -= scaled * U[i][k];
            }
            Vec6<T> g;
            for (int k = 0; k < 6; ++k) g[k] = dot(F, root_column(k));
            contact.root[r] = forward_solve(root_L, g);
            acceleration += dot(contact.root[r], root_u);
            contact.b[r] = velocity + m.dt * acceleration;
            contact.x[r] = T(0.0);
        }
        T push = m.erp / m.dt * gap;
        contact.b[0] += value(push) > -m.max_push ? push : T(-m.max_push);
        contacts.push_back(contact);
    }

    T coupling(const Contact<T>& a, int r, const Contact<T>& b, int s) const {
        T sum = dot(a.root[r], b.root[s]);
        // the parts of the two paths that are the same links: none for feet of different legs
        std::vector<int> one = path(a), two = path(b);
        for (std::size_t i = 0; i < one.size(); ++i)
            for (std::size_t j = 0; j < two.size(); ++j)
                if (one[i] == two[j]) sum += a.u[r][i] * b.u[s][j] / D[one[i]];
        return sum;
    }

    std::vector<int> path(const Contact<T>& c) const {
        std::vector<int> links;
        for (int i = m.sphere_link[c.sphere]; i > 0; i = m.parent[i]) links.push_back(i);
        return links;
    }

    void solve_contacts() {
        using std::sqrt;
        const int rows = 3 * static_cast<int>(contacts.size());
        std::vector<T> A(rows * rows), x(rows, T(0.0)), step(rows);
        for (int r = 0; r < rows; ++r)
            for (int s = 0; s <= r; ++s)
                A[r * rows + s] = A[s * rows + r] = coupling(contacts[r / 3], r % 3, contacts[s / 3], s % 3);
        for (std::size_t k = 0; k < contacts.size(); ++k) {
            int r = 3 * k;
            auto at = [&](int i, int j) -> T& { return A[(r + i) * rows + r + j]; };
            at(0, 0) += m.cfm;
            T an = at(0, 0);
            double jam = m.friction[contacts[k].sphere] * std::hypot(value(at(0, 1)), value(at(0, 2))) + value(an);
            while (jam > 1.75 * value(an)) an = 2.0 * an;
            step[r] = 1.0 / an;
            step[r + 1] = step[r + 2] = 1.0 / (0.6 * (at(1, 1) + at(2, 2)));
        }
        auto residual = [&](int r) {
            T sum = contacts[r / 3].b[r % 3];
            for (int s = 0; s < rows; ++s) sum += A[r * rows + s] * x[s];
            return sum;
        };
        for (int sweep = 0; sweep < m.iterations; ++sweep)
            for (int r = 0; r < rows; r += 3) {
                T normal = x[r] - step[r] * residual(r);
                x[r] = value(normal) > 0.0 ? normal : T(0.0);
                T limit = m.friction[contacts[r / 3].sphere] * x[r];
                T t = x[r + 1] - step[r + 1] * residual(r + 1), s = x[r + 2] - step[r + 2] * residual(r + 2);
                T length2 = t * t + s * s;
                if (value(length2) > value(limit) * value(limit)) {
                    T scale = limit / sqrt(length2);
                    t = t * scale, s = s * scale;
                }
                x[r + 1] = t, x[r + 2] = s;
            }
        for (int r = 0; r < rows; ++r) contacts[r / 3].x[r % 3] = x[r];
    }

    void push(const Contact<T>& contact) {
        auto links = path(contact);
        for (int r = 0; r < 3; ++r) {
            T force = contact.x[r] / m.dt;
            for (std::size_t i = 0; i < links.size(); ++i) u[links[i]] += contact.u[r][i] * force;
            for (int k = 0; k < 6; ++k) root_u[k] += contact.root[r][k] * force;
        }
    }

    void accelerations() {
        auto rate = backward_solve(root_L, root_u);
        std::vector<Vec6<T>> a(n);
        for (auto& x : a[0]) x = T(0.0);
        for (int k = 0; k < 6; ++k) {
            auto column = root_column(k);
            qdd[k] = rate[k];
            for (int j = 0; j < 6; ++j) a[0][j] += column[j] * rate[k];
        }
        for (int i = 1; i < n; ++i) {
            T rate_i = (u[i] - dot(U[i], a[m.parent[i]])) / D[i];
            qdd[m.v_start[i]] = rate_i;
            for (int k = 0; k < 6; ++k) a[i][k] = a[m.parent[i]][k] + S[i][k] * rate_i;
        }
    }

    void integrate(std::vector<T>& state) const {
        using std::cos;
        using std::sin;
        using std::sqrt;
        T* q = state.data();
        T* qd = state.data() + m.positions;
        for (int j = 0; j < m.dofs; ++j) qd[j] += m.dt * qdd[j];
        for (int k = 0; k < 3; ++k) q[k] += m.dt * qd[k];
        T length = sqrt(q[3] * q[3] + q[4] * q[4] + q[5] * q[5] + q[6] * q[6]);
        Vec3<T> e{q[3] / length, q[4] / length, q[5] / length};
        T ew = q[6] / length;
        double half = 0.5 * m.dt;
        T f2 = half * half * (qd[3] * qd[3] + qd[4] * qd[4] + qd[5] * qd[5]), sinc, c;
        if (value(f2) > 1e-3) {
            T f1 = sqrt(f2);
            sinc = sin(f1) / f1, c = cos(f1);
        } else {  // series: the quotient, and the root's slope, lose their meaning near zero
            sinc = 1.0 - f2 / 6.0 * (1.0 - f2 / 20.0 * (1.0 - f2 / 42.0));
            c = 1.0 - f2 / 2.0 * (1.0 - f2 / 12.0 * (1.0 - f2 / 30.0));
        }
        Vec3<T> w{half * sinc * qd[3], half * sinc * qd[4], half * sinc * qd[5]};
        auto we = cross(w, e);
        for (int k = 0; k < 3; ++k) q[3 + k] = c * e[k] + ew * w[k] + we[k];
        q[6] = c * ew - (w[0] * e[0] + w[1] * e[1] + w[2] * e[2]);
        for (int i = 1; i < n; ++i) q[m.q_start[i]] += m.dt * qd[m.v_start[i]];
    }
};
