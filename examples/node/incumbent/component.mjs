// The elector: a WebAssembly component, which jco has made into modules that Node runs.

import { readFileSync } from 'node:fs';
import { ElectionError } from './errors.mjs';

/** @import { Elector } from '../component/interfaces/incumbent-election-elector.js' */
/** @import { Config, ConfigError } from '../component/interfaces/incumbent-election-types.js' */

const { instantiate } = await import('../component/incumbent.js').catch((cause) => {
  throw new Error('there is no elector in component/: make it, by `npm run build`', { cause });
});

/** @type {Map<string, WebAssembly.Module>} */
const modules = new Map();

/** @param {string} name */
function compiled(name) {
  const module = modules.get(name)
    ?? new WebAssembly.Module(readFileSync(new URL(`../component/${name}`, import.meta.url)));
  modules.set(name, module);
  return module;
}

/**
 * Opens an elector in an instance, and so in a memory, of its own: one that traps harms no other.
 *
 * @param {Config} config
 * @param {bigint} now
 * @param {(module: WebAssembly.Module, imports: any) => WebAssembly.Instance} [instantiateCore]
 * @returns {Elector}
 * @throws {ElectionError} `configuration`
 */
export function openElector(config, now, instantiateCore) {
  const { Elector } = instantiate(compiled, {}, instantiateCore).elector;
  try {
    return Elector.open(config, now);
  } catch (error) {
    // An error of the component's own is thrown bare; a trap is a real one.
    const refusal = /** @type {ConfigError} */ (error);
    if (error instanceof Error) throw error;
    const why = refusal.tag === 'other' ? refusal.val : 'the margin leaves no time to lead';
    throw new ElectionError('configuration', why, refusal);
  }
}
