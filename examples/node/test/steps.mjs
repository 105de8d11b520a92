// The steps files: values of the component's types as JSON, and back.
//
// The JSON does not say what its strings are; their names do. Whatever is neither text nor
// bytes is a number of 64 bits.

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
 * @param {any} value
 * @returns {any}
 */
export function encode(value) {
  if (value === undefined) return null;
  if (typeof value === 'bigint') return value.toString();
  if (value instanceof Uint8Array) return Buffer.from(value).toString('hex');
  if (Array.isArray(value)) return value.map(encode);
  if (typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value)
    // A case without a value has none at all.
    .filter(([key, item]) => !(key === 'val' && item === undefined))
    .map(([key, item]) => [key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`), encode(item)]));
}
