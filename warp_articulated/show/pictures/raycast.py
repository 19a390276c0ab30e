"""Device code of the ray caster: the colour of a pixel, poses of shapes, and palette entries of a film.

`rayscene.py` launches the kernels. Light is linear RGB; pixels are sRGB.
"""

import warp as wp

from .rayshapes import FAR, FIELD, Scene, is_blocked, nearest_shape

wp.set_module_options({"enable_backward": False})

GOLDEN_ANGLE = wp.constant(2.39996323)
GOLDEN_X, GOLDEN_Y = wp.constant(-0.73736888), wp.constant(0.67549029)  # its cosine and sine

FINE = wp.constant(0.02)  # of sky_reach: pixels wider than this need one ray of a kind per sample
TRANSPARENT = wp.constant(255)  # this entry of a film's palette means: as in the frame before
HOLD = wp.constant(2)  # levels of 255 by which a pixel may change unnoticed: frames leave it out


@wp.struct
class Air:
    """Ground and light."""

    ground: float  # height, m
    cell: float  # width of the ground's squares, m
    sky_reach: float  # distance over which things darken each other, m
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
    samples: int  # rays per pixel and axis
    shadow_rays: int  # per sample; the samples of a pixel use different directions
    sky_rays: int  # likewise


@wp.struct
class Spread:
    """How the light rays of one sample of a pixel are spread over all directions."""

    sample: int
    samples: int  # of the pixel
    rays: int  # of the sample
    turn: float  # rad, differs from pixel to pixel


@wp.func
def across(axis: wp.vec3):
    """A unit vector across a unit axis."""
    helper = wp.vec3(1.0, 0.0, 0.0)
    if wp.abs(axis[0]) > 0.7:
        helper = wp.vec3(0.0, 1.0, 0.0)
    return wp.normalize(wp.cross(axis, helper))


@wp.func
def first_spot(spread: Spread):
    """First spot of a sample in a sunflower pattern, turned: a point on the unit circle."""
    angle = float(spread.sample * spread.rays) * GOLDEN_ANGLE + spread.turn
    return wp.vec2(wp.cos(angle), wp.sin(angle))


@wp.func
def next_spot(spot: wp.vec2):
    """The spot one golden angle further, without a sine."""
    return wp.vec2(GOLDEN_X * spot[0] - GOLDEN_Y * spot[1], GOLDEN_Y * spot[0] + GOLDEN_X * spot[1])


@wp.func
def spot_area(spread: Spread, k: int):
    """Share of the circle that is inside spot k of a sample."""
    return (float(spread.sample * spread.rays + k) + 0.5) / float(spread.samples * spread.rays)


@wp.func
def sunlight(scene: Scene, air: Air, point: wp.vec3, spread: Spread):
    """Share of the sun's disk that is seen from a point."""
    blocked = float(0.0)
    u = across(air.sun)
    v = wp.cross(air.sun, u)
    spot = first_spot(spread)
    for k in range(spread.rays):
        r = air.sun_radius * wp.sqrt(spot_area(spread, k))
        ray = wp.normalize(air.sun + r * (spot[0] * u + spot[1] * v))
        blocked += is_blocked(scene, point, ray, FAR)
        spot = next_spot(spot)
    return 1.0 - blocked / float(spread.rays)


@wp.func
def skylight(scene: Scene, reach: float, point: wp.vec3, normal: wp.vec3, spread: Spread):
    """Share of the sky above a point that is not blocked nearby, weighted by the cosine."""
    blocked = float(0.0)
    u = across(normal)
    v = wp.cross(normal, u)
    spot = first_spot(spread)
    for k in range(spread.rays):
        r2 = spot_area(spread, k)
        ray = wp.sqrt(r2) * (spot[0] * u + spot[1] * v) + wp.sqrt(1.0 - r2) * normal
        blocked += is_blocked(scene, point, ray, reach)
        spot = next_spot(spot)
    return 1.0 - blocked / float(spread.rays)


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
def shade(scene: Scene, air: Air, view: View, ray: wp.vec3, spread: Spread):
    ground = float(FAR)
    if ray[2] < -1.0e-6 and view.eye[2] > air.ground:
        ground = (air.ground - view.eye[2]) / ray[2]
    hit = nearest_shape(scene, view.eye, ray, ground)
    gloss = float(0.25)
    if ground < FAR and hit.t == ground:
        hit.normal = wp.vec3(0.0, 0.0, 1.0)
        p = (view.eye + ground * ray) / air.cell
        footprint = ground * view.pixel / air.cell
        slant = 1.0 / wp.abs(ray[2])
        wide_x = footprint * (1.0 + wp.abs(ray[0]) * slant) + 1.0e-4
        wide_y = footprint * (1.0 + wp.abs(ray[1]) * slant) + 1.0e-4
        hit.color = ground_color(p[0], p[1], wide_x, wide_y)
        gloss = 0.0
    if hit.t == FAR:
        return sky(ray)
    point = view.eye + hit.t * ray + hit.normal * (1.0e-5 + 2.0e-6 * hit.t)
    fine = hit.t * view.pixel < FINE * air.sky_reach  # otherwise a pixel is wider than a shadow's soft edge
    spread.rays = wp.where(fine, view.sky_rays, 1)
    open_sky = skylight(scene, air.sky_reach, point, hit.normal, spread)
    facing = wp.dot(hit.normal, air.sun)
    sun = float(0.0)
    if facing > 0.0:
        spread.rays = wp.where(fine, view.shadow_rays, 1)
        sun = facing * sunlight(scene, air, point, spread)
    tilt = 0.5 + 0.5 * hit.normal[2]
    ambient = wp.lerp(wp.vec3(0.20, 0.20, 0.20), wp.vec3(0.46, 0.52, 0.60), tilt) * (0.25 + 0.75 * open_sky)
    color = wp.cw_mul(hit.color, ambient + wp.vec3(1.35, 1.25, 1.10) * sun)
    if gloss * sun > 0.0:
        half = wp.normalize(air.sun - ray)
        shine = gloss * wp.pow(wp.max(wp.dot(half, hit.normal), 0.0), 40.0) * wp.min(4.0 * sun, 1.0)
        color = color + wp.vec3(shine, shine, shine)
    far = hit.t / air.haze
    return wp.lerp(color, sky(wp.vec3(0.0, 0.0, 0.0)), 1.0 - wp.exp(-far * far))


@wp.func
def to_srgb(linear: float):
    x = wp.clamp(linear, 0.0, 1.0)
    if x <= 0.0031308:
        return wp.uint8(255.0 * 12.92 * x + 0.5)
    return wp.uint8(255.0 * (1.055 * wp.pow(x, 1.0 / 2.4) - 0.055) + 0.5)


@wp.kernel
def render_pixels(first_row: int, scene: Scene, air: Air, view: View, image: wp.array3d(dtype=wp.uint8)):
    row_in_band, column = wp.tid()
    row = first_row + row_in_band
    # a cheap hash without visible structure: turns the directions of light rays from pixel to pixel
    place = 0.06711056 * float(column) + 0.00583715 * float(row)
    grain = 52.9829189 * (place - wp.floor(place))
    spread = Spread()
    spread.samples = view.samples * view.samples
    spread.turn = 6.2831853 * (grain - wp.floor(grain))
    total = wp.vec3(0.0, 0.0, 0.0)
    for a in range(view.samples):
        for b in range(view.samples):
            x = (float(column) + (float(a) + 0.5) / float(view.samples)) / float(view.width) * 2.0 - 1.0
            y = 1.0 - (float(row) + (float(b) + 0.5) / float(view.samples)) / float(view.height) * 2.0
            ray = wp.normalize(view.forward + x * view.right + y * view.up)
            spread.sample = a * view.samples + b
            color = shade(scene, air, view, ray, spread)
            # clamp before averaging: an over-bright sample would give its pixel a jagged edge
            total += wp.vec3(wp.min(color[0], 1.0), wp.min(color[1], 1.0), wp.min(color[2], 1.0))
    total = total / float(view.samples * view.samples)
    for k in range(3):
        image[row, column, k] = to_srgb(total[k])


@wp.kernel
def place_shapes(
    first_env: int,
    scene: Scene,
    link_pos: wp.array2d(dtype=wp.vec3),
    link_rot: wp.array2d(dtype=wp.quat),
    offsets: wp.array(dtype=wp.vec3),
    lower: wp.array(dtype=wp.vec3),
    upper: wp.array(dtype=wp.vec3),
):
    """Poses and bounding boxes of all copies in the world, from the links' poses in their environments."""
    env_in_band, s = wp.tid()
    env = first_env + env_in_band
    i = env * scene.num_shapes + s
    shape = scene.shapes[s]
    base, turn, link = offsets[env] + wp.vec3(0.0, 0.0, 0.0), wp.quat_identity(), shape.link
    if link >= 0:
        base = base + link_pos[env, link]
        turn = turn * link_rot[env, link]
    pos = base + wp.quat_rotate(turn, shape.pos)
    rot = wp.normalize(turn * shape.rot)
    scene.pos[i] = pos
    scene.rot[i] = rot
    R, half = wp.quat_to_matrix(rot), 1.0 * shape.half
    if shape.kind >= FIELD and env > 0:
        half = wp.vec3(0.0, 0.0, 0.0)  # all environments share the first one's
    middle = pos + R * shape.middle
    extent = wp.vec3(1.0e-5, 1.0e-5, 1.0e-5)  # |R| half bounds the turned box
    for a in range(3):
        extent[a] = extent[a] + wp.abs(R[a, 0]) * half[0] + wp.abs(R[a, 1]) * half[1] + wp.abs(R[a, 2]) * half[2]
    lower[i] = middle - extent
    upper[i] = middle + extent


@wp.kernel
def choose_colors(
    first_row: int,
    image: wp.array3d(dtype=wp.uint8),
    palette: wp.array(dtype=wp.vec3),
    pattern: wp.array2d(dtype=float),
    shown: wp.array3d(dtype=wp.uint8),
    index: wp.array2d(dtype=wp.uint8),
    change: wp.array2d(dtype=wp.uint8),
):
    """Palette entries of a frame: `index` is all of it, `change` only what differs from the frame before.

    shown: the colours for which `index` was chosen; pattern: what the dither adds, in levels of 255.
    """
    row_in_band, column = wp.tid()
    row = first_row + row_in_band
    moved = int(0)
    for k in range(3):
        moved = wp.max(moved, wp.abs(int(image[row, column, k]) - int(shown[row, column, k])))
    before = int(index[row, column])
    change[row, column] = wp.uint8(TRANSPARENT)
    if moved <= HOLD and before != TRANSPARENT:
        return
    wish = wp.vec3(0.0, 0.0, 0.0)
    for k in range(3):
        wish[k] = float(image[row, column, k]) + pattern[row % pattern.shape[0], column % pattern.shape[1]]
        shown[row, column, k] = image[row, column, k]
    best, nearest = float(FAR), int(0)
    for k in range(palette.shape[0]):
        distance = wp.length_sq(palette[k] - wish)
        if distance < best:
            best = distance
            nearest = k
    if nearest != before:
        index[row, column] = wp.uint8(nearest)
        change[row, column] = wp.uint8(nearest)
