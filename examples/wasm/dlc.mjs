// Models that dlc exported as WebAssembly modules, in browsers and in Node.js.
//
//     const model = await Model.load(await fetch("net.wasm"));       or the bytes of the file
//     const {scores} = model.run({image: new Float32Array(3 * 96 * 96)});
//     scores.data, scores.shape
//
// Inputs are typed arrays by name. Values of 16-bit floats are their bits. A model with symbolic dims takes
// their values by name: model.run(inputs, {dim_n: 4}).

const ARRAYS = {
  float64: Float64Array, float32: Float32Array, float16: Uint16Array, bfloat16: Uint16Array,
  int64: BigInt64Array, int32: Int32Array, int16: Int16Array, int8: Int8Array,
  uint64: BigUint64Array, uint32: Uint32Array, uint16: Uint16Array, uint8: Uint8Array, bool: Uint8Array,
};
const PAGE = 1 << 16;
const ALIGN = 64;

export class Model {
  static async load(source) {
    const bytes = source.arrayBuffer ? await source.arrayBuffer() : source;
    const module = await WebAssembly.compile(bytes);
    const [section] = WebAssembly.Module.customSections(module, "dlc");
    if (!section) throw new Error("dlc did not export this module");
    return new Model(await WebAssembly.instantiate(module), JSON.parse(new TextDecoder().decode(section)));
  }

  constructor(instance, about) {
    this.exports = instance.exports;
    this.about = about;
  }

  run(inputs, dims = {}) {
    const {inputs: ins, outputs: outs, dims: names} = this.about;
    const sizes = names.map((name) => BigInt(dims[name]));
    this.top = this.exports.__heap_base.value >>> 0;
    const given = ins.map(({name, dtype, shape}) => {
      const array = inputs[name];
      const known = shape.every(Number.isInteger);
      if (!(array instanceof ARRAYS[dtype]) || (known && array.length !== count(shape)))
        throw new Error(`the input ${name} must be a ${ARRAYS[dtype].name} of shape ${shape}`);
      return {array, at: this.place(array.byteLength)};
    });
    const made = outs.map((out, i) => {
      const shape = out.shape.every(Number.isInteger) ? out.shape : this.shape(i, out.shape.length, sizes);
      const bytes = count(shape) * ARRAYS[out.dtype].BYTES_PER_ELEMENT;
      return {...out, shape, at: this.place(bytes)};
    });
    const workspace = this.place(Number(this.call("workspace_size", ...sizes)));
    const [from, to] = [given, made].map((all) => this.place(4 * all.length));
    for (const {array, at} of given) this.view(array.constructor, at, array.length).set(array);
    this.view(Uint32Array, from, given.length).set(given.map(({at}) => at));
    this.view(Uint32Array, to, made.length).set(made.map(({at}) => at));
    const status = this.call("run", from, to, workspace, 1, ...sizes);
    if (status) throw new Error(`${this.about.name}_run failed with ${status}`);
    return Object.fromEntries(made.map(({name, dtype, shape, at}) =>
      [name, {shape, data: this.view(ARRAYS[dtype], at, count(shape)).slice()}]));
  }

  shape(index, rank, sizes) {
    const at = this.place(8 * rank);
    this.call(`output${index}_shape`, at, ...sizes);
    return Array.from(this.view(BigInt64Array, at, rank), Number);
  }

  call(name, ...args) {
    return this.exports[`${this.about.name}_${name}`](...args);
  }

  place(bytes) {
    const at = Math.ceil(this.top / ALIGN) * ALIGN;
    this.top = at + bytes;
    const lacking = this.top - this.exports.memory.buffer.byteLength;
    if (lacking > 0) this.exports.memory.grow(Math.ceil(lacking / PAGE));
    return at;
  }

  view(type, at, length) {
    return new type(this.exports.memory.buffer, at, length);
  }
}

function count(shape) {
  return shape.reduce((a, b) => a * b, 1);
}
