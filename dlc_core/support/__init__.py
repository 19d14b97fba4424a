"""General helpers: lazy imports, cheap frozen dataclasses, disk quotas."""
