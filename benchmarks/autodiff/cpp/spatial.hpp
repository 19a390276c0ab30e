// Vectors, rotations and spatial algebra for every kind of number. Spatial vectors are (angular, linear).

#pragma once

#include <array>
#include <cmath>

inline double value(double x) { return x; }

template <class T> using Vec3 = std::array<T, 3>;
template <class T> using Vec6 = std::array<T, 6>;
template <class T> using Mat3 = std::array<T, 9>;
template <class T> using Mat6 = std::array<T, 36>;

template <class A, class B> auto cross(const Vec3<A>& a, const Vec3<B>& b) {
    using T = decltype(a[0] * b[0] - a[0] * b[0]);
    return Vec3<T>{a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}

template <class T> T dot(const Vec6<T>& a, const Vec6<T>& b) {
    T sum = a[0] * b[0];
    for (int k = 1; k < 6; ++k) sum += a[k] * b[k];
    return sum;
}

template <class T> Vec3<T> turned(const Mat3<T>& R, const double* v) {
    return {R[0] * v[0] + R[1] * v[1] + R[2] * v[2], R[3] * v[0] + R[4] * v[1] + R[5] * v[2],
            R[6] * v[0] + R[7] * v[1] + R[8] * v[2]};
}

template <class T> Mat3<T> product(const Mat3<T>& A, const double* B) {
    Mat3<T> C;
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j) C[3 * i + j] = A[3 * i] * B[j] + A[3 * i + 1] * B[3 + j] + A[3 * i + 2] * B[6 + j];
    return C;
}

template <class T> Mat3<T> rotation(const T& x, const T& y, const T& z, const T& w) {
    T s = 2.0 / (x * x + y * y + z * z + w * w);
    return {1.0 - s * (y * y + z * z), s * (x * y - z * w), s * (x * z + y * w),
            s * (x * y + z * w), 1.0 - s * (x * x + z * z), s * (y * z - x * w),
            s * (x * z - y * w), s * (y * z + x * w), 1.0 - s * (x * x + y * y)};
}

template <class T> Vec6<T> times(const Mat6<T>& I, const Vec6<T>& v) {
    Vec6<T> out;
    for (int i = 0; i < 6; ++i) {
        T sum = I[6 * i] * v[0];
        for (int j = 1; j < 6; ++j) sum += I[6 * i + j] * v[j];
        out[i] = sum;
    }
    return out;
}

template <class T> Vec6<T> cross_motion(const Vec6<T>& v, const Vec6<T>& m) {
    Vec3<T> w{v[0], v[1], v[2]}, l{v[3], v[4], v[5]}, a{m[0], m[1], m[2]}, b{m[3], m[4], m[5]};
    auto top = cross(w, a), one = cross(w, b), two = cross(l, a);
    return {top[0], top[1], top[2], one[0] + two[0], one[1] + two[1], one[2] + two[2]};
}

template <class T> Vec6<T> cross_force(const Vec6<T>& v, const Vec6<T>& f) {
    Vec3<T> w{v[0], v[1], v[2]}, l{v[3], v[4], v[5]}, n{f[0], f[1], f[2]}, g{f[3], f[4], f[5]};
    auto one = cross(w, n), two = cross(l, g), low = cross(w, g);
    return {one[0] + two[0], one[1] + two[1], one[2] + two[2], low[0], low[1], low[2]};
}

// Inertia of a body about the world's origin, from its mass, com (world) and inertia about the com (world axes).
template <class T> Mat6<T> spatial_inertia(double m, const Vec3<T>& c, const Mat3<T>& I) {
    Mat6<T> out;
    for (auto& x : out) x = T(0.0);
    T cc = c[0] * c[0] + c[1] * c[1] + c[2] * c[2];
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j) {
            out[6 * i + j] = I[3 * i + j] - m * c[i] * c[j];
            if (i == j) out[6 * i + j] += m * cc;
        }
    const int sign[3][3] = {{0, -1, 1}, {1, 0, -1}, {-1, 1, 0}};
    for (int i = 0; i < 3; ++i) {
        out[6 * (i + 3) + i + 3] = T(m);
        for (int j = 0; j < 3; ++j)
            if (i != j) {
                out[6 * i + j + 3] = sign[i][j] * m * c[3 - i - j];
                out[6 * (j + 3) + i] = sign[i][j] * m * c[3 - i - j];
            }
    }
    return out;
}

// Cholesky factor L of a symmetric 6 x 6 matrix, in its lower half.
template <class T> void factorise(Mat6<T>& A) {
    using std::sqrt;
    for (int j = 0; j < 6; ++j) {
        for (int k = 0; k < j; ++k) A[7 * j] -= A[6 * j + k] * A[6 * j + k];
        A[7 * j] = sqrt(A[7 * j]);
        for (int i = j + 1; i < 6; ++i) {
            for (int k = 0; k < j; ++k) A[6 * i + j] -= A[6 * i + k] * A[6 * j + k];
            A[6 * i + j] /= A[7 * j];
        }
    }
}

template <class T> Vec6<T> forward_solve(const Mat6<T>& L, Vec6<T> b) {
    for (int i = 0; i < 6; ++i) {
        for (int k = 0; k < i; ++k) b[i] -= L[6 * i + k] * b[k];
        b[i] /= L[7 * i];
    }
    return b;
}

template <class T> Vec6<T> backward_solve(const Mat6<T>& L, Vec6<T> b) {
    for (int i = 5; i >= 0; --i) {
        for (int k = i + 1; k < 6; ++k) b[i] -= L[6 * k + i] * b[k];
        b[i] /= L[7 * i];
    }
    return b;
}
