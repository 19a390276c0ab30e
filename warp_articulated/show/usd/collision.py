"""Colliders, their materials, and filters for every pair that does not collide in the model."""

from __future__ import annotations

from itertools import combinations, product

from pxr import Gf, Usd, UsdGeom, UsdPhysics, UsdShade

from ...model import FIELDS, WORLD, Model, Shape, ShapeType
from .scene import ground_paths

MATERIALS = "/World/materials"
GROUPS = "/World/collision_groups"


def add_colliders(stage: Usd.Stage, model: Model, links: list[str], shape_paths: dict[int, str]) -> None:
    """CollisionAPI on the shapes that collide, with friction and restitution, and filters between them.

    Args:
        links: prims of the links.
        shape_paths: prims of the shapes by their index in model.shapes, without the shared grounds.
    """
    materials: dict[tuple[float, float], UsdShade.Material] = {}
    colliders: dict[int, str] = {}
    for k, path in {**shape_paths, **ground_paths(model)}.items():
        if k < len(model.shapes) and model.shapes[k].collide:
            collider = _add_collider(stage, path, model.shapes[k])
            colliders[k] = str(collider.GetPath())
            material = _material(stage, materials, model.shapes[k])
            UsdShade.MaterialBindingAPI.Apply(collider).Bind(material, UsdShade.Tokens.weakerThanDescendants, "physics")
    _add_filters(stage, model, links, colliders)


def _add_collider(stage: Usd.Stage, path: str, shape: Shape) -> Usd.Prim:
    if shape.type == ShapeType.PLANE:
        # the visible square is finite; this one is infinite for physics, and hidden from viewers
        plane = UsdGeom.Plane.Define(stage, f"{path}/collider")
        plane.CreateAxisAttr(UsdGeom.Tokens.z)
        plane.CreatePurposeAttr(UsdGeom.Tokens.guide)
        plane.CreateExtentAttr([Gf.Vec3f(-1.0, -1.0, 0.0), Gf.Vec3f(1.0, 1.0, 0.0)])
        prim = plane.GetPrim()
    else:
        prim = stage.GetPrimAtPath(path)
    UsdPhysics.CollisionAPI.Apply(prim)
    if shape.type == ShapeType.MESH:
        UsdPhysics.MeshCollisionAPI.Apply(prim).CreateApproximationAttr(UsdPhysics.Tokens.convexHull)
    elif shape.type in FIELDS:
        UsdPhysics.MeshCollisionAPI.Apply(prim).CreateApproximationAttr(UsdPhysics.Tokens.none)
    return prim


def _material(stage: Usd.Stage, known: dict[tuple[float, float], UsdShade.Material], shape: Shape) -> UsdShade.Material:
    key = (float(shape.friction), float(shape.restitution))
    if key not in known:
        if not known:
            UsdGeom.Scope.Define(stage, MATERIALS)
        known[key] = UsdShade.Material.Define(stage, f"{MATERIALS}/surface_{len(known)}")
        schema = UsdPhysics.MaterialAPI.Apply(known[key].GetPrim())
        schema.CreateStaticFrictionAttr(key[0])
        schema.CreateDynamicFrictionAttr(key[0])
        schema.CreateRestitutionAttr(key[1])
    return known[key]


def may_touch(model: Model, one: int, two: int) -> bool:
    """True if any shapes of two links (or of one and the world, -1) collide in the model."""
    return any({model.shapes[a].link, model.shapes[b].link} == {one, two} for a, b in model.pairs.tolist())


def _add_filters(stage: Usd.Stage, model: Model, links: list[str], colliders: dict[int, str]) -> None:
    """FilteredPairs between links none of whose shapes touch in the model, else between single shapes."""
    touching = {frozenset(pair) for pair in model.pairs.tolist()}
    shapes_of: dict[int, list[int]] = {}
    for k in colliders:
        shapes_of.setdefault(model.shapes[k].link, []).append(k)
    filtered: dict[str, list[str]] = {}
    for low, high in combinations(sorted(shapes_of), 2):
        pairs = list(product(shapes_of[high], shapes_of[low]))
        apart = [pair for pair in pairs if frozenset(pair) not in touching]
        if len(apart) < len(pairs):
            for a, b in apart:
                filtered.setdefault(colliders[a], []).append(colliders[b])
        elif low == WORLD:
            filtered.setdefault(links[high], []).extend(colliders[k] for k in shapes_of[WORLD])
        elif model.parent[high] != low:  # a joint filters its two bodies
            filtered.setdefault(links[high], []).append(links[low])
    for path, targets in filtered.items():
        schema = UsdPhysics.FilteredPairsAPI.Apply(stage.GetPrimAtPath(path))
        schema.CreateFilteredPairsRel().SetTargets(targets)


def keep_environments_apart(stage: Usd.Stage, env_names: list[str], grounds: list[str]) -> None:
    """Collision groups: an environment touches itself and the shared grounds, but never its neighbours."""
    UsdGeom.Scope.Define(stage, GROUPS)
    shared = [_add_group(stage, f"{GROUPS}/ground", grounds)] if grounds else []
    for name in env_names:
        group = _add_group(stage, f"{GROUPS}/{name}", [f"/World/{name}"])
        group.CreateInvertFilteredGroupsAttr(True)  # collides with these groups only
        group.CreateFilteredGroupsRel().SetTargets([g.GetPath() for g in [group, *shared]])


def _add_group(stage: Usd.Stage, path: str, members: list[str]) -> UsdPhysics.CollisionGroup:
    group = UsdPhysics.CollisionGroup.Define(stage, path)
    group.GetCollidersCollectionAPI().CreateIncludesRel().SetTargets(members)
    return group
