"""What people look at: pictures, films, USD stages and the viewer."""
