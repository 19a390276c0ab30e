"""Pictures without a display: a ray caster in Warp (raycast, rayshapes, rayscene), PNG (render), GIF (gif, palette)."""
