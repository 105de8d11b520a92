// Makes the elector's component into modules that Node runs, in component/.

import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { transpile } from '@bytecodealliance/jco-transpile';

const here = path.dirname(fileURLToPath(import.meta.url));
const places = process.env.INCUMBENT_COMPONENT
  ? [process.env.INCUMBENT_COMPONENT]
  : [path.join(here, 'incumbent.wasm'), path.join(here, '../../target/incumbent.wasm')];
const component = places.find(existsSync);
if (!component) {
  console.error(`no component at ${places.join(' or ')}: put incumbent.wasm there (in the project,`
    + ' `just component` makes it), or name it by INCUMBENT_COMPONENT');
  process.exit(1);
}

const outDir = path.join(here, 'component');
// Written beside it and then moved: a host that starts meanwhile finds the old one or the new one.
const [made, former] = [`${outDir}.new`, `${outDir}.old`];
// With `instantiation`, each elector is an instance of its own.
const { files, imports } = await transpile(component, {
  name: 'incumbent',
  outDir: made,
  instantiation: 'sync',
});
if (imports.length > 0) {
  console.error(`${component} imports ${imports.join(', ')}: an elector imports nothing`);
  process.exit(1);
}
await rm(made, { recursive: true, force: true });
for (const [file, bytes] of Object.entries(files)) {
  await mkdir(path.dirname(file), { recursive: true });
  await writeFile(file, bytes);
}
// Recordings name the component.
const hash = createHash('sha256').update(await readFile(component)).digest('hex');
await writeFile(path.join(made, 'incumbent.wasm.sha256'), `${hash}\n`);
await rm(former, { recursive: true, force: true });
if (existsSync(outDir)) await rename(outDir, former);
await rename(made, outDir);
await rm(former, { recursive: true, force: true });
console.log(`component/: made from ${component}`);
