// node run.mjs FOLDER [RUNS]

import {readFile} from "node:fs/promises";
import {check} from "./check.mjs";

const [folder, runs] = process.argv.slice(2);
const read = async (name) => new Uint8Array(await readFile(`${folder}/${name}`)).buffer;
console.log(await check(read, runs && Number(runs)));
