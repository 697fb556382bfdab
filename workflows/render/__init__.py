"""Turn a plan into manifests and check them (compile side)."""
