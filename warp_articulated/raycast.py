"""Device code of the ray caster: what one pixel sees. `render.py` fills the Scene and launches `render_pixels`.

Every shape is convex, so a ray meets it in one interval, and only the entry matters: light never starts inside.
Light is linear RGB; render.py converts from and to sRGB.
"""

import warp as wp

wp.set_module_options({"enable_backward": False})

FAR = wp.constant(1.0e30)
SPHERE, CAPSULE, BOX, CYLINDER = wp.constant(0), wp.constant(1), wp.constant(2), wp.constant(3)  # as in ShapeType

SAMPLES = wp.constant(2)  # per pixel and axis
SHADOW_RAYS = wp.constant(3)  # per sample; the samples of a pixel use different directions
SKY_RAYS = wp.constant(2)
GOLDEN_ANGLE = wp.constant(2.39996323)


@wp.struct
class Scene:
    bvh: wp.uint64
    kind: wp.array(dtype=wp.int32)  # ShapeType; anything beyond a cylinder is a hull
    pos: wp.array(dtype=wp.vec3)
    rot: wp.array(dtype=wp.quat)
    size: wp.array(dtype=wp.vec3)
    color: wp.array(dtype=wp.vec3)
    hull: wp.array(dtype=wp.vec2i)  # first plane and number of planes
    planes: wp.array(dtype=wp.vec4)  # outward normal and offset of hull faces: n . x + d <= 0 inside
    ground: float  # height, m
    cell: float  # width of the ground's squares, m
    sky_reach: float  # how far things darken each other, m
    haze: float  # distance at which the ground fades, m
    sun: wp.vec3  # towards the light, unit
    sun_radius: float  # tangent of the sun's half angle: the softness of shadows


@wp.struct
class View:
    eye: wp.vec3
    right: wp.vec3  # half the picture's width at distance 1
    up: wp.vec3
    forward: wp.vec3
    width: int
    height: int
    pixel: float  # size of a pixel at distance 1


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
def enter_hull(o: wp.vec3, d: wp.vec3, hull: wp.vec2i, planes: wp.array(dtype=wp.vec4)):
    near, far = float(-FAR), float(FAR)
    normal = wp.vec3(0.0, 0.0, 1.0)
    for k in range(hull[0], hull[0] + hull[1]):
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
def enter_shape(scene: Scene, i: int, eye: wp.vec3, ray: wp.vec3):
    """Distance to shape i and its normal in the world; FAR for a miss or a start inside."""
    o = wp.quat_rotate_inv(scene.rot[i], eye - scene.pos[i])
    d = wp.quat_rotate_inv(scene.rot[i], ray)
    # start where the ray passes the shape: a small sphere far away would otherwise drown in rounding
    skip = -wp.dot(o, d)
    o = o + skip * d
    kind, size = scene.kind[i], scene.size[i]
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
        t, n = enter_hull(o, d, scene.hull[i], scene.planes)
    t = t + skip
    if t < 0.0:
        t = FAR
    return t, wp.quat_rotate(scene.rot[i], n)


@wp.func
def nearest_shape(scene: Scene, eye: wp.vec3, ray: wp.vec3):
    hit = Hit()
    hit.t = FAR
    query = wp.bvh_query_ray(scene.bvh, eye, ray)
    i = int(0)
    while wp.bvh_query_next(query, i, hit.t):
        t, n = enter_shape(scene, i, eye, ray)
        if t < hit.t:
            hit.t = t
            hit.normal = n
            hit.color = scene.color[i]
    return hit


@wp.func
def is_blocked(scene: Scene, start: wp.vec3, ray: wp.vec3, reach: float):
    blocked = float(0.0)
    query = wp.bvh_query_ray(scene.bvh, start, ray)
    i = int(0)
    while blocked == 0.0 and wp.bvh_query_next(query, i, reach):
        t, _n = enter_shape(scene, i, start, ray)
        if t < reach:
            blocked = 1.0
    return blocked


@wp.func
def around(axis: wp.vec3, x: float, y: float, z: float):
    """x, y, z in a frame whose z is the axis."""
    helper = wp.vec3(1.0, 0.0, 0.0)
    if wp.abs(axis[0]) > 0.7:
        helper = wp.vec3(0.0, 1.0, 0.0)
    u = wp.normalize(wp.cross(axis, helper))
    return x * u + y * wp.cross(axis, u) + z * axis


@wp.func
def sunlight(scene: Scene, point: wp.vec3, sample: int, turn: float):
    """Share of the sun's disk that is seen from a point."""
    blocked = float(0.0)
    for k in range(SHADOW_RAYS):
        index = float(sample * SHADOW_RAYS + k) + 0.5
        r = scene.sun_radius * wp.sqrt(index / float(SAMPLES * SAMPLES * SHADOW_RAYS))
        angle = index * GOLDEN_ANGLE + turn
        ray = wp.normalize(around(scene.sun, r * wp.cos(angle), r * wp.sin(angle), 1.0))
        blocked += is_blocked(scene, point, ray, FAR)
    return 1.0 - blocked / float(SHADOW_RAYS)


@wp.func
def skylight(scene: Scene, point: wp.vec3, normal: wp.vec3, sample: int, turn: float):
    """Share of the sky above a point that is not blocked nearby, weighted by the cosine."""
    blocked = float(0.0)
    for k in range(SKY_RAYS):
        index = float(sample * SKY_RAYS + k) + 0.5
        r = wp.sqrt(index / float(SAMPLES * SAMPLES * SKY_RAYS))
        angle = index * GOLDEN_ANGLE + turn
        ray = around(normal, r * wp.cos(angle), r * wp.sin(angle), wp.sqrt(1.0 - r * r))
        blocked += is_blocked(scene, point, ray, scene.sky_reach)
    return 1.0 - blocked / float(SKY_RAYS)


@wp.func
def sky(ray: wp.vec3):
    h = wp.clamp(ray[2], 0.0, 1.0)
    return wp.lerp(wp.vec3(0.82, 0.87, 0.92), wp.vec3(0.25, 0.45, 0.75), 1.0 - wp.exp(-2.2 * h))


@wp.func
def line_integral(x: float, width: float):
    return wp.floor(x) * width + wp.min(x - wp.floor(x), width)


@wp.func
def square_integral(x: float):
    """Integral of a wave that is 1 on [0, 1) and -1 on [1, 2)."""
    f = x - 2.0 * wp.floor(0.5 * x)
    return wp.min(f, 2.0 - f)


@wp.func
def ground_color(x: float, y: float, wide_x: float, wide_y: float):
    """A grid of pale squares, averaged exactly over a pixel's footprint so that it does not flicker far away."""
    width = 0.02
    line_x = (line_integral(x + 0.5 * wide_x, width) - line_integral(x - 0.5 * wide_x, width)) / wide_x
    line_y = (line_integral(y + 0.5 * wide_y, width) - line_integral(y - 0.5 * wide_y, width)) / wide_y
    wave_x = (square_integral(x + 0.5 * wide_x) - square_integral(x - 0.5 * wide_x)) / wide_x
    wave_y = (square_integral(y + 0.5 * wide_y) - square_integral(y - 0.5 * wide_y)) / wide_y
    color = wp.vec3(0.29, 0.33, 0.37) * (1.0 + 0.05 * wave_x * wave_y)
    line = line_x + line_y - line_x * line_y
    return wp.lerp(color, wp.vec3(0.50, 0.54, 0.58), line)


@wp.func
def shade(scene: Scene, view: View, ray: wp.vec3, sample: int, turn: float):
    hit = nearest_shape(scene, view.eye, ray)
    gloss = float(0.25)
    if ray[2] < -1.0e-6:
        t = (scene.ground - view.eye[2]) / ray[2]
        if t > 0.0 and t < hit.t:
            hit.t = t
            hit.normal = wp.vec3(0.0, 0.0, 1.0)
            p = (view.eye + t * ray) / scene.cell
            footprint = t * view.pixel / scene.cell
            slant = 1.0 / wp.abs(ray[2])
            wide_x = footprint * (1.0 + wp.abs(ray[0]) * slant) + 1.0e-4
            wide_y = footprint * (1.0 + wp.abs(ray[1]) * slant) + 1.0e-4
            hit.color = ground_color(p[0], p[1], wide_x, wide_y)
            gloss = 0.0
    background = sky(ray)
    color = background
    if hit.t < FAR:
        point = view.eye + hit.t * ray + hit.normal * (1.0e-5 + 2.0e-6 * hit.t)
        open_sky = skylight(scene, point, hit.normal, sample, turn)
        facing = wp.dot(hit.normal, scene.sun)
        sun = float(0.0)
        if facing > 0.0:
            sun = facing * sunlight(scene, point, sample, turn)
        tilt = 0.5 + 0.5 * hit.normal[2]
        ambient = wp.lerp(wp.vec3(0.20, 0.20, 0.20), wp.vec3(0.46, 0.52, 0.60), tilt) * (0.25 + 0.75 * open_sky)
        light = ambient + wp.vec3(1.35, 1.25, 1.10) * sun
        half = wp.normalize(scene.sun - ray)
        shine = gloss * wp.pow(wp.max(wp.dot(half, hit.normal), 0.0), 40.0) * wp.min(4.0 * sun, 1.0)
        color = wp.cw_mul(hit.color, light) + wp.vec3(shine, shine, shine)
        far = hit.t / scene.haze
        horizon = sky(wp.vec3(ray[0], ray[1], 0.0))
        color = wp.lerp(color, horizon, 1.0 - wp.exp(-far * far))
    return color


@wp.kernel
def render_pixels(scene: Scene, view: View, first_row: int, image: wp.array2d(dtype=wp.vec3)):
    row_in_band, column = wp.tid()
    row = first_row + row_in_band
    # a cheap hash without visible structure: turns the directions of light rays from pixel to pixel
    grain = 52.9829189 * (0.06711056 * float(column) + 0.00583715 * float(row) - wp.floor(
        0.06711056 * float(column) + 0.00583715 * float(row)))  # fmt: skip
    turn = 6.2831853 * (grain - wp.floor(grain))
    total = wp.vec3(0.0, 0.0, 0.0)
    for a in range(SAMPLES):
        for b in range(SAMPLES):
            x = (float(column) + (float(a) + 0.5) / float(SAMPLES)) / float(view.width) * 2.0 - 1.0
            y = 1.0 - (float(row) + (float(b) + 0.5) / float(SAMPLES)) / float(view.height) * 2.0
            ray = wp.normalize(view.forward + x * view.right + y * view.up)
            color = shade(scene, view, ray, a * SAMPLES + b, turn)
            # clamp before averaging: an over-bright sample would give its pixel a jagged edge
            total += wp.vec3(wp.min(color[0], 1.0), wp.min(color[1], 1.0), wp.min(color[2], 1.0))
    image[row, column] = total / float(SAMPLES * SAMPLES)
