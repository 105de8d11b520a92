// The steps files: reads values of the component's types from JSON, and replays. The host's recorder
// writes them.
//
// The JSON does not say what its strings are; their names do. Whatever is neither text nor
// bytes is a number of 64 bits.

import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import { openElector } from '../incumbent/component.mjs';
import { encode } from '../incumbent/recorder.mjs';

const TEXT = new Set(['name', 'contest', 'order', 'tag', 'denied', 'invalid', 'other']);
const BYTES = new Set(['key', 'value', 'proclaim', 'delete']);

/**
 * @param {any} json
 * @param {string} [name] of the field, or of the case whose value it is
 * @returns {any}
 */
export function decode(json, name = '') {
  if (json === null) return undefined;
  if (typeof json === 'string') {
    if (TEXT.has(name)) return json;
    return BYTES.has(name) ? Uint8Array.from(Buffer.from(json, 'hex')) : BigInt(json);
  }
  if (Array.isArray(json)) return json.map((item) => decode(item, name));
  if (typeof json !== 'object') return json;
  return Object.fromEntries(Object.entries(json).map(([key, value]) => [
    key.replace(/-([a-z])/g, (_, letter) => letter.toUpperCase()),
    decode(value, key === 'val' ? json.tag : key),
  ]));
}

/**
 * Gives an elector what a transcript or a recording says, and compares the steps.
 *
 * @param {string} text
 * @returns {number} how many steps are the same
 */
export function replay(text) {
  const [head, ...lines] = text.trimEnd().split('\n').map((line) => JSON.parse(withoutStandIns(line)));
  assert.equal(head.format, 1);
  assert.equal(head.package, 'incumbent:election@0.1.0');
  /** @type {import('../component/interfaces/incumbent-election-elector.js').Elector | undefined} */
  let elector;
  let same = 0;
  for (const [number, line] of lines.entries()) {
    if (line.format || line.host) continue;
    const now = BigInt(line.now);
    if ('open' in line) {
      elector = undefined;
      const open = () => { elector = openElector(decode(line.open), now); };
      if (!line.error) open();
      else assert.throws(open, ({ cause }) => isDeepStrictEqual(encode(cause), line.error));
    } else {
      const step = elector?.handle(now, decode(line.events));
      assert.deepEqual(encode(step), line.step, `line ${number + 2}`);
      same += 1;
    }
  }
  return same;
}

/**
 * A line of a recording, with the bytes that its stand-ins stand for.
 *
 * @param {string} line
 */
function withoutStandIns(line) {
  return line.replace(/"~([0-9a-f]{16}):(\d+)"/g, (_, hash, length) => (
    `"${hash.repeat(Math.ceil(length / 8)).slice(0, 2 * length)}"`));
}
