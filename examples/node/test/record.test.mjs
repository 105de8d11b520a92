// Recordings: they tell no value, replay to the bit, keep to their limit, and disturb no election.

import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { openElector } from '../incumbent/component.mjs';
import { ElectionError, Session } from '../incumbent/session.mjs';
import { Etcd, eventually } from './etcd.mjs';
import { replay } from './steps.mjs';

const LEAST = 64 << 10;
const SECRET = 'a secret of this candidate';

/** @type {Etcd} */
let etcd;
/** @type {string} */
let dir;
before(async () => { etcd = await Etcd.start('3.5'); });
after(() => etcd.stop());
beforeEach(() => { dir = mkdtempSync(path.join(os.tmpdir(), 'incumbent-node-')); });
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const files = (folder = dir) => readdirSync(folder).sort().map((name) => path.join(folder, name));
const bytes = () => files().reduce((sum, file) => sum + statSync(file).size, 0);

/**
 * What is recorded of a session that leads, hands over, and closes.
 *
 * @param {import('../incumbent/recorder.mjs').Recording} record
 */
async function recorded(record) {
  const one = await Session.connect(etcd.url, { identity: 'one', record });
  const two = await Session.connect(etcd.url, { identity: 'two' });
  const leadership = await one.campaign('incumbent-wishes/recorded', { value: SECRET, priority: 1 });
  const next = two.campaign('incumbent-wishes/recorded', { value: 'short' });
  await leadership.put('recorded-result', SECRET);
  await leadership.resign();
  await (await next).put('recorded-result', 'short');
  await Promise.all([one.close(), two.close(), (await next).resign()]);
  return files(record.dir).map((file) => readFileSync(file, 'utf8')).join('');
}

test('a recording replays to the bit, and holds no value', async () => {
  const text = await recorded({ dir: path.join(dir, 'made', 'here') });
  assert.ok(replay(text) > 5);
  for (const value of [SECRET, 'short']) {
    assert.ok(!text.includes(value) && !text.includes(Buffer.from(value).toString('hex')), value);
  }
  assert.ok(text.includes(Buffer.from('incumbent-wishes/incumbent-wishes/recorded/').toString('hex')), 'it has made a wish');
  const lines = text.trimEnd().split('\n').map((line) => JSON.parse(line));
  const { identity, recording, segment, component } = lines[0];
  assert.deepEqual([identity, segment, component.length], ['one', 0, 64]);
  assert.match(recording, /^\w+Z-\d+-\d+$/);
  assert.match(lines[1].host.val, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  assert.deepEqual(lines.at(-1).host, { tag: 'closed' });
});

test('values are written if asked for, and only the owner can read the file', async () => {
  const text = await recorded({ dir, values: true });
  assert.ok(replay(text) > 5);
  assert.ok(text.includes(Buffer.from(SECRET).toString('hex')) && !text.includes('"~'));
  assert.equal(statSync(`${files()}`).mode & 0o777, 0o600);
});

test('the oldest files go, those of earlier starts first', async () => {
  const [ended, foreign, running] = ['20000101T000000000Z-4194305-0-000000', 'notes', `20000101T000000000Z-${process.ppid}-0-000000`];
  for (const name of [ended, foreign, running]) writeFileSync(path.join(dir, `${name}.jsonl`), 'x'.repeat(1_000));
  const session = await Session.connect(etcd.url, { record: { dir, limit: LEAST } });
  const leadership = await session.campaign('limited');
  while (files().some((file) => file.includes('-000000') && !file.includes(running))) {
    await leadership.put('limited-result', SECRET);
    assert.ok(bytes() <= LEAST + 2_000);
  }
  await leadership.resign();
  await session.close();
  const left = files().map((file) => path.basename(file, '.jsonl'));
  assert.ok(!left.includes(ended) && left.includes(foreign) && left.includes(running));
  const own = files().filter((file) => !file.includes(running) && !file.includes(foreign));
  assert.ok(own.length >= 10 && own.length <= 17, `${own.length} segments`);
  for (const file of own) {
    assert.ok(statSync(file).size <= LEAST / 16);
    const [head, clock] = readFileSync(file, 'utf8').split('\n', 2).map((line) => JSON.parse(line));
    assert.deepEqual([head.format, clock.host.tag], [1, 'clock']);
  }
  const [, , elections] = readFileSync(`${own[0]}`, 'utf8').split('\n', 3).map((line) => JSON.parse(line));
  const key = Buffer.from(leadership.key).toString('hex');
  assert.deepEqual(elections.host, { tag: 'elections', val: [{ election: 1, name: 'limited', key }] });
});

test('a directory that is removed ends the recording, with one warning, and no election', async () => {
  const session = await Session.connect(etcd.url, { record: { dir, limit: LEAST } });
  /** @type {string[]} */
  const trouble = [];
  session.on('trouble', (sentence) => trouble.push(sentence));
  const leadership = await session.campaign('removed');
  rmSync(dir, { recursive: true });
  await eventually(async () => {
    await leadership.put('removed-result', SECRET);
    return trouble.length > 0;
  }, 'a warning');
  for (let count = 0; count < 100; count += 1) await leadership.put('removed-result', SECRET);
  assert.ok(leadership.isValid());
  await leadership.resign();
  await session.close();
  assert.equal(trouble.length, 1);
  assert.match(`${trouble}`, /^the recording in \S+ has ended, and the election goes on: it cannot be written \(ENOENT/);
});

test('an elector that breaks is recorded, and the next one', async () => {
  let breaks = false;
  /** @type {typeof openElector} */
  const open = (config, now) => {
    const elector = openElector(config, now);
    return /** @type {any} */ ({
      handle: (/** @type {bigint} */ mark, /** @type {any[]} */ events) => {
        if (breaks) throw new WebAssembly.RuntimeError('unreachable');
        return elector.handle(mark, events);
      },
    });
  };
  const session = await Session.connect(etcd.url, { identity: 'breaks', open, record: { dir } });
  await (await session.campaign('broken-first')).resign();
  breaks = true;
  const next = session.campaign('broken');
  await new Promise((resolve) => session.once('replaced', () => resolve(undefined)));
  breaks = false;
  await (await next).resign();
  await session.close();
  const text = readFileSync(`${files()}`, 'utf8');
  const lines = text.trimEnd().split('\n').map((line) => JSON.parse(line));
  const broken = lines.findIndex((line) => line.step === null);
  assert.equal(lines[broken].events[0].tag, 'campaign');
  assert.deepEqual(lines[broken + 1].host, { tag: 'broke', val: 'unreachable' });
  assert.ok(lines[broken + 2].open);
  assert.ok(replay(lines.filter((line) => line.step !== null).map((line) => JSON.stringify(line)).join('\n')) > 5);
});

test('a recording that cannot be is refused in a sentence', async () => {
  writeFileSync(path.join(dir, 'file'), '');
  const wrong = [
    [{ dir: path.join(dir, 'file', 'below') }, /^nothing can be recorded in \S+ \(ENOTDIR.*\): give a directory that/],
    [{ dir: '' }, /^record.dir: '' is not the path of a directory$/],
    [{ dir, limit: 5 }, /^record.limit: 5 is not a number of bytes, 65536 at least$/],
  ];
  for (const [record, sentence] of /** @type {[any, RegExp][]} */ (wrong)) {
    await assert.rejects(Session.connect(etcd.url, { record }), (error) => (
      error instanceof ElectionError && error.code === 'configuration' && sentence.test(error.message)));
  }
});
