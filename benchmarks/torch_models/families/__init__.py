"""The models, by kind. Each module registers its own."""
