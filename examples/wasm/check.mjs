// Runs the exported network on an image, compares its scores with those of the compiling machine, and measures
// it. `read` returns the bytes of a file by its name.

import {Model} from "./dlc.mjs";

export async function check(read, runs = 20) {
  const model = await Model.load(await read("net.wasm"));
  const image = new Float32Array(await read("image.bin"));
  const expected = new Float32Array(await read("expected.bin"));
  const [input] = model.about.inputs;
  const [output] = model.about.outputs;
  const scores = model.run({[input.name]: image})[output.name].data;
  let error = 0;
  scores.forEach((score, i) => { error = Math.max(error, Math.abs(score - expected[i])); });
  if (scores.length !== expected.length || !(error < 1e-5)) throw new Error(`wrong scores: error ${error}`);
  const times = [];
  for (let i = 0; i < runs; ++i) {
    const before = performance.now();
    model.run({[input.name]: image});
    times.push(performance.now() - before);
  }
  times.sort((a, b) => a - b);
  const best = scores.indexOf(Math.max(...scores));
  const median = times[times.length >> 1].toFixed(2);
  return `right: class ${best}, error ${error.toExponential(1)}, median of ${runs} runs ${median} ms`;
}
