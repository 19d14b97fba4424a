"""WebAssembly: the target `wasm32`, its linker, its modules, and the device that runs them in Wasmtime."""
