"""Line formats: how a line says when it was written and at which level. Pure."""
