"""How a compiled model is called, as data: signatures, their JSON form, and calls by descriptors."""
