"""Device code of the ray caster: the scene, and where a ray meets its shapes.

All shapes but fields are convex, so a ray meets one in an interval, and only the entry matters: light never starts
inside.
Copy k of shape s, the one of environment k, has the number k * shapes + s.
"""

# Warp has its own typing rules; a number that a dynamic loop changes must be initialised as int(0) or float(0.0)
# mypy: ignore-errors
# ruff: noqa: UP018, RUF046

import warp as wp

from ...model import ShapeType

wp.set_module_options({"enable_backward": False})

FAR = wp.constant(1.0e30)
SPHERE, CAPSULE = wp.constant(int(ShapeType.SPHERE)), wp.constant(int(ShapeType.CAPSULE))
BOX, CYLINDER = wp.constant(int(ShapeType.BOX)), wp.constant(int(ShapeType.CYLINDER))
FIELD = wp.constant(int(ShapeType.HEIGHTFIELD))  # and above


@wp.struct
class Shape:
    """A shape in its link: the same in all environments."""

    kind: int  # ShapeType; anything but the four above and fields is a hull
    link: int  # -1: the world
    pos: wp.vec3  # in the link, m
    rot: wp.quat
    size: wp.vec3
    middle: wp.vec3  # of the bounding box in the shape's frame
    half: wp.vec3  # its half extents
    color: wp.vec3
    first_plane: int
    num_planes: int
    mesh: wp.uint64  # of a field


@wp.struct
class Scene:
    """Few members, because Warp passes structs by value."""

    bvh: wp.uint64
    num_shapes: int
    shapes: wp.array(dtype=Shape)
    planes: wp.array(dtype=wp.vec4)  # outward normal and offset of hull faces: n . x + d <= 0 inside
    pos: wp.array(dtype=wp.vec3)  # in the world, one entry per copy
    rot: wp.array(dtype=wp.quat)
    middle: wp.vec3  # of a box around everything
    half: wp.vec3


@wp.struct
class Hit:
    t: float
    normal: wp.vec3
    color: wp.vec3


@wp.func
def enter_sphere(o: wp.vec3, d: wp.vec3, radius: float):
    b = wp.dot(o, d)
    disc = b * b - wp.dot(o, o) + radius * radius
    t = FAR
    if disc > 0.0:
        t = -b - wp.sqrt(disc)
    return t, (o + t * d) / radius


@wp.func
def enter_box(o: wp.vec3, d: wp.vec3, half: wp.vec3):
    near, far = float(-FAR), float(FAR)
    normal = wp.vec3(0.0, 0.0, 0.0)
    for k in range(3):
        if wp.abs(d[k]) < 1.0e-9:
            if wp.abs(o[k]) > half[k]:
                far = -FAR
        else:
            side = -wp.sign(d[k])
            t = (side * half[k] - o[k]) / d[k]
            if t > near:
                near = t
                normal = wp.vec3(0.0, 0.0, 0.0)
                normal[k] = side
            far = wp.min(far, (-side * half[k] - o[k]) / d[k])
    if near > far:
        near = FAR
    return near, normal


@wp.func
def enter_tube(o: wp.vec3, d: wp.vec3, radius: float):
    """Entry into and exit from an infinite cylinder along z."""
    a = d[0] * d[0] + d[1] * d[1]
    b = o[0] * d[0] + o[1] * d[1]
    c = o[0] * o[0] + o[1] * o[1] - radius * radius
    near, far = float(-FAR), float(FAR)
    if a < 1.0e-12:
        if c > 0.0:
            far = -FAR
    else:
        disc = b * b - a * c
        if disc < 0.0:
            far = -FAR
        else:
            root = wp.sqrt(disc)
            near, far = (-b - root) / a, (-b + root) / a
    return near, far


@wp.func
def enter_cylinder(o: wp.vec3, d: wp.vec3, radius: float, half: float):
    near, far = enter_tube(o, d, radius)
    p = o + near * d
    normal = wp.vec3(p[0], p[1], 0.0) / radius
    if wp.abs(d[2]) < 1.0e-9:
        if wp.abs(o[2]) > half:
            far = -FAR
    else:
        side = -wp.sign(d[2])
        t = (side * half - o[2]) / d[2]
        if t > near:
            near = t
            normal = wp.vec3(0.0, 0.0, side)
        far = wp.min(far, (-side * half - o[2]) / d[2])
    if near > far:
        near = FAR
    return near, normal


@wp.func
def enter_capsule(o: wp.vec3, d: wp.vec3, radius: float, half: float):
    best, far = enter_tube(o, d, radius)
    p = o + best * d
    normal = wp.vec3(p[0], p[1], 0.0) / radius
    if best < -1.0e29 or best > far or wp.abs(p[2]) > half:
        best = FAR
    for k in range(2):
        centre = wp.vec3(0.0, 0.0, float(2 * k - 1) * half)
        t, n = enter_sphere(o - centre, d, radius)
        if t < best:
            best = t
            normal = n
    return best, normal


@wp.func
def enter_hull(o: wp.vec3, d: wp.vec3, first: int, count: int, planes: wp.array(dtype=wp.vec4)):
    near, far = float(-FAR), float(FAR)
    normal = wp.vec3(0.0, 0.0, 1.0)
    for k in range(first, first + count):
        plane = planes[k]
        n = wp.vec3(plane[0], plane[1], plane[2])
        rate, gap = wp.dot(n, d), wp.dot(n, o) + plane[3]
        if rate < 0.0:
            t = -gap / rate
            if t > near:
                near = t
                normal = n
        elif rate > 0.0:
            far = wp.min(far, -gap / rate)
        elif gap > 0.0:
            far = -FAR
    if near > far:
        near = FAR
    return near, normal


@wp.func
def enter_field(mesh: wp.uint64, rot: wp.quat, o: wp.vec3, d: wp.vec3):
    """A field is seen from both sides."""
    t, u, v, sign, face = float(0.0), float(0.0), float(0.0), float(0.0), int(0)
    n = wp.vec3(0.0, 0.0, 0.0)
    if not wp.mesh_query_ray(mesh, o, d, 1.0e6, t, u, v, sign, n, face):
        return FAR, wp.vec3(0.0, 0.0, 1.0)
    return t, wp.quat_rotate(rot, -wp.sign(wp.dot(n, d)) * n)


@wp.func
def enter_shape(scene: Scene, i: int, eye: wp.vec3, ray: wp.vec3):
    """Distance to shape i and its normal in the world; FAR for a miss or a start inside."""
    s = i % scene.num_shapes
    o = wp.quat_rotate_inv(scene.rot[i], eye - scene.pos[i])
    d = wp.quat_rotate_inv(scene.rot[i], ray)
    if scene.shapes[s].kind >= FIELD:
        return enter_field(scene.shapes[s].mesh, scene.rot[i], o, d)
    # start where the ray passes the shape: a small sphere far away would otherwise drown in rounding
    skip = -wp.dot(o, d)
    o = o + skip * d
    kind, size = scene.shapes[s].kind, scene.shapes[s].size
    t, n = float(FAR), wp.vec3(0.0, 0.0, 1.0)
    if kind == SPHERE:
        t, n = enter_sphere(o, d, size[0])
    elif kind == CAPSULE:
        t, n = enter_capsule(o, d, size[0], size[1])
    elif kind == BOX:
        t, n = enter_box(o, d, size)
    elif kind == CYLINDER:
        t, n = enter_cylinder(o, d, size[0], size[1])
    else:
        t, n = enter_hull(o, d, scene.shapes[s].first_plane, scene.shapes[s].num_planes, scene.planes)
    if t > 1.0e29:
        return FAR, n
    t = t + skip
    if t < 0.0:
        t = FAR
    return t, wp.quat_rotate(scene.rot[i], n)


@wp.func
def meets_box(middle: wp.vec3, half: wp.vec3, start: wp.vec3, ray: wp.vec3, reach: float):
    """False if a ray passes by the box around everything: most do, and a query of the tree costs more than this."""
    near, far = float(0.0), float(reach)
    for k in range(3):
        inverse = 1.0 / ray[k]
        centre, width = (middle[k] - start[k]) * inverse, wp.abs(half[k] * inverse)
        near, far = wp.max(near, centre - width), wp.min(far, centre + width)
    return near <= far


@wp.func
def nearest_shape(scene: Scene, eye: wp.vec3, ray: wp.vec3, reach: float):
    """The first shape before `reach`; if there is none, t is reach."""
    hit = Hit()
    hit.t = reach
    if not meets_box(scene.middle, scene.half, eye, ray, reach):
        return hit
    nearest = int(-1)
    query = wp.bvh_query_ray(scene.bvh, eye, ray)
    i = int(0)
    while wp.bvh_query_next(query, i, hit.t):
        t, n = enter_shape(scene, i, eye, ray)
        if t < hit.t:
            hit.t = t
            hit.normal = n
            nearest = i
    if nearest >= 0:
        hit.color = scene.shapes[nearest % scene.num_shapes].color
    return hit


@wp.func
def is_blocked(scene: Scene, start: wp.vec3, ray: wp.vec3, reach: float):
    blocked = float(0.0)
    if not meets_box(scene.middle, scene.half, start, ray, reach):
        return blocked
    query = wp.bvh_query_ray(scene.bvh, start, ray)
    i = int(0)
    while blocked == 0.0 and wp.bvh_query_next(query, i, reach):
        t, _n = enter_shape(scene, i, start, ray)
        if t < reach:
            blocked = 1.0
    return blocked
