// What goes wrong: pauses, kills, links that break, an etcd that restarts, an elector that traps.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { openElector } from '../incumbent/component.mjs';
import { ElectionError, now, Session } from '../incumbent/session.mjs';
import { Etcd, eventually, VERSIONS } from './etcd.mjs';
import { Relay } from './relay.mjs';

const counter = fileURLToPath(new URL('../counter.mjs', import.meta.url));

for (const version of VERSIONS) {
  describe(`etcd ${version}`, () => {
    /** @type {Etcd} */
    let etcd;
    before(async () => { etcd = await Etcd.start(version); });
    after(() => etcd.stop());

    test('a paused leader is none when it wakes, nor is a killed one', async (context) => {
      const logs = mkdtempSync(path.join(os.tmpdir(), 'incumbent-node-logs-'));
      const rival = await Session.connect(etcd.url, { ttl: 2 });
      /** @param {string} name */
      const start = (name) => {
        const child = spawn(process.execPath, [counter, '--store', etcd.url,
          '--process', name, '--logs', logs, '--election', 'paused', '--ttl', '2'], { stdio: 'inherit' });
        context.after(() => child.kill('SIGKILL'));
        return child;
      };
      /** @param {string} name */
      const lines = (name) => {
        const text = readFileSync(path.join(logs, `${name}.jsonl`), 'utf8');
        return text.slice(0, text.lastIndexOf('\n')).split('\n').map((line) => JSON.parse(line));
      };
      /** @param {string} name */
      const counts = (name) => eventually(() => {
        try {
          return lines(name).some(({ outcome }) => outcome === 'applied');
        } catch {
          return false;
        }
      }, `${name} counts`);

      const sleeper = start('sleeper');
      await counts('sleeper');
      const next = rival.campaign('paused');
      sleeper.kill('SIGSTOP');
      const leadership = await next;
      const elected = now();
      // The deadline of the paused one is past: its clock says so before it has heard of anything.
      assert.ok(lines('sleeper').every(({ valid_until = 0 }) => valid_until < elected));
      sleeper.kill('SIGCONT');
      await eventually(() => lines('sleeper').some(({ event }) => event === 'demoted'), 'it is told');
      const late = () => lines('sleeper').filter(({ event, mark }) => event === 'invoke' && mark > elected);
      await eventually(() => late().length > 0, 'it counts on');
      const awake = late();
      assert.ok(awake.every(({ leads }) => !leads), 'it does not lead');
      for (const { increment } of awake) {
        await eventually(() => lines('sleeper').some((line) => (
          line.event === 'return' && line.increment === increment)), 'its late write is answered');
        const answer = lines('sleeper').find((line) => line.event === 'return' && line.increment === increment);
        assert.equal(answer?.outcome, 'nothing');
      }
      await leadership.resign();

      await eventually(() => lines('sleeper').filter(({ event }) => event === 'elected').length > 1,
        'it is back in line, and leads');
      const again = rival.campaign('paused');
      await eventually(() => etcd.keys('paused/').length === 2, 'its rival is in line');
      sleeper.kill('SIGKILL');
      await once(sleeper, 'exit');
      const successor = await again;
      const at = now();
      const last = lines('sleeper').findLast(({ valid_until }) => valid_until)?.valid_until;
      assert.ok(at > last, 'after the lease');
      await successor.resign();

      const orderly = start('orderly');
      await counts('orderly');
      orderly.kill('SIGTERM');
      assert.deepEqual(await once(orderly, 'exit'), [0, null]);
      assert.equal(lines('orderly').findLast(({ event }) => event === 'demoted')?.reason, 'resigned');
      await (await rival.campaign('paused')).resign();
      await rival.close();
      rmSync(logs, { recursive: true });
    });

    test('a link that is cut is made anew: renewals and watches go on', async () => {
      const relay = await Relay.to(etcd.port);
      const session = await Session.connect(relay.url, { ttl: 2 });
      const rival = await Session.connect(etcd.url, { ttl: 2 });
      const leadership = await rival.campaign('cut');
      const next = session.campaign('cut');
      await eventually(() => etcd.keys('cut/').length === 2, 'it is in line');
      const { kvs } = JSON.parse(etcd.ctl('get', '--prefix', 'cut/', '-w', 'json'));
      const [, place] = kvs.map((/** @type {any} */ kv) => kv.create_revision)
        .sort((/** @type {number} */ a, /** @type {number} */ b) => a - b);
      relay.cut();
      // Longer than the lease: it lives on over other connections, and so does the place in line.
      await sleep(2_500);
      await leadership.resign();
      const won = await next;
      assert.equal(won.epoch, BigInt(place));
      const extended = once(session, 'extended');
      relay.cut();
      await extended;
      relay.cut();
      await won.put('cut-result', 'written').catch(({ code }) => assert.equal(code, 'unknown'));
      assert.ok(won.isValid());
      await won.resign();
      await Promise.all([session.close(), rival.close()]);
      relay.close();
    });

    test('a renewal that is lost endangers, and the clock ends the term', async () => {
      const relay = await Relay.to(etcd.port);
      const session = await Session.connect(relay.url, { ttl: 3 });
      const rival = await Session.connect(etcd.url, { ttl: 3 });
      const leadership = await session.campaign('silent');
      const next = rival.campaign('silent').then((won) => ({ won, at: now() }));
      const [[extended]] = [await once(session, 'extended')];
      assert.equal(extended, leadership);
      relay.silence();
      const { validUntil } = leadership;
      const [[endangered]] = [await once(session, 'endangered')];
      assert.equal(endangered, leadership);
      assert.ok(leadership.validUntil - now() < 1_500_000_000n);
      assert.equal(await leadership.lost(), 'expired');
      assert.equal(leadership.validUntil, validUntil, 'nothing has extended it');
      assert.ok(now() >= validUntil && !leadership.isValid());
      const { won, at } = await next;
      assert.ok(at > validUntil, 'nobody led before');
      relay.close();
      await won.resign();
      await rival.close();
      leadership.resign();
      await session.close();
    });

    test('a loop that is blocked: the clock is asked, not an event', async () => {
      const session = await Session.connect(etcd.url, { ttl: 2 });
      const leadership = await session.campaign('blocked');
      let told = false;
      leadership.signal.addEventListener('abort', () => { told = true; });
      while (now() < leadership.validUntil) { /* a long computation */ }
      assert.ok(!told && !leadership.isValid());
      assert.match(await leadership.lost(), /^(expired|lease-lost)$/);
      await leadership.resign();
      await session.close();
    });

    test('an elector that traps is replaced, and its leadership ends', async () => {
      const trap = trapdoor();
      const session = await Session.connect(etcd.url, { ttl: 2, open: trap.open });
      const leadership = await session.campaign('trap');
      const other = session.campaign('trap-too').then((won) => won.resign());
      await other;
      const written = leadership.put('trap-result', 'one');
      const waits = await Session.connect(etcd.url, { ttl: 2 });
      const held = await waits.campaign('held');
      const pending = session.campaign('held');
      await written;
      trap.armed = true;
      await Promise.all([broken(session), assert.rejects(leadership.put('trap-result', 'two'),
        (error) => error instanceof ElectionError && error.code === 'unknown')]);
      trap.armed = false;
      assert.ok(!leadership.isValid(), 'nobody extends it any more');
      await assert.rejects(leadership.put('trap-result', 'three'), (error) => (
        error instanceof ElectionError && error.code === 'stale'));
      assert.match(await leadership.resign(), /^the elector broke: .*unreachable/);
      const again = await session.campaign('trap');
      assert.ok(again.epoch > leadership.epoch);
      assert.ok(now() >= leadership.validUntil, 'its lease ran out before');
      await held.resign();
      await (await pending).resign();
      await again.resign();
      await Promise.all([session.close(), waits.close()]);
    });

    test('a session stays drained when its elector traps', async () => {
      const trap = trapdoor();
      const session = await Session.connect(etcd.url, { ttl: 2, open: trap.open });
      session.drain();
      const won = session.campaign('trap-drained');
      trap.armed = true;
      await Promise.all([broken(session), session.campaign('trap-drained-too', { signal: AbortSignal.timeout(1) })
        .catch(() => {})]);
      trap.armed = false;
      const other = await Session.connect(etcd.url, { ttl: 2 });
      // Its elector has had time to claim a key.
      await (await other.campaign('trap-after')).resign();
      assert.deepEqual(etcd.keys('trap-drained'), []);
      session.undoDrain();
      await (await won).resign();
      await Promise.all([session.close(), other.close()]);
    });

    test('an elector that traps leaves nobody waiting', async () => {
      const trap = trapdoor();
      const session = await Session.connect(etcd.url, { ttl: 2, open: trap.open });
      const [one, two] = [await session.campaign('left-1'), await session.campaign('left-2')];
      // One release is under way; the other is asked for too late.
      trap.armed = true;
      const [first, second] = [one.resign(), new Promise((turn) => setImmediate(turn)).then(() => two.resign())];
      const writes = Array.from({ length: 300 }, () => two.put('left-result', '').catch(({ code }) => code));
      assert.equal(await first, 'resigned');
      assert.match(await second, /^the elector broke/);
      assert.deepEqual((await Promise.all(writes)).reduce((all, code) => ({ ...all, [code]: (all[code] ?? 0) + 1 }), {}),
        { unknown: 256, stale: 44 });
      // It breaks again, while somebody waits and somebody gives up.
      const giveUp = new AbortController();
      const given = assert.rejects(session.campaign('left-3', { signal: giveUp.signal }), /given up/);
      const waits = session.campaign('left-4');
      await broken(session);
      giveUp.abort(new Error('given up'));
      await given;
      trap.armed = false;
      await (await waits).resign();
      await session.close();
    });

    test('a member that hangs is left for another', async () => {
      const relays = [await Relay.to(etcd.port), await Relay.to(etcd.port)];
      const url = relays.map((relay) => relay.url).join().replace(',etcd://', ',');
      const session = await Session.connect(url, { ttl: 3 });
      const names = ['hung-1', 'hung-2', 'hung-3'];
      const won = await Promise.all(names.map((name) => session.campaign(name)));
      const [used, ...others] = relays.filter(({ connections }) => connections > 0);
      assert.deepEqual(others, [], 'one is used until it fails');
      used?.silence();
      const { validUntil } = won[0] ?? assert.fail();
      await Promise.all(won.map((leadership) => eventually(
        () => now() > validUntil && (leadership.isValid() || assert.fail('it was lost')), 'it leads on')));
      await won[0]?.put('hung-result', '');
      assert.ok(await session.get('hung-result'));
      await Promise.all(won.map((leadership) => leadership.resign()));
      // And by who comes now.
      for (let count = 0; count < 3; count += 1) {
        const next = await Session.connect(url, { ttl: 3 });
        await (await next.campaign('hung-1')).resign();
        await next.close();
      }
      await session.close();
      for (const relay of relays) relay.close();
    });

    test('a member that is down is passed over', async () => {
      for (let count = 0; count < 10; count += 1) {
        const session = await Session.connect(`etcd://127.0.0.1:1,127.0.0.1:${etcd.port}`);
        const leadership = await session.campaign('down');
        await leadership.put('down-result', '');
        assert.ok(await session.get('down-result'));
        await leadership.resign();
        await session.close();
      }
    });

    test('an etcd that restarts is come back to', async () => {
      const session = await Session.connect(etcd.url, { ttl: 5 });
      const rival = await Session.connect(etcd.url, { ttl: 5 });
      const leadership = await session.campaign('restart');
      const next = rival.campaign('restart');
      await eventually(() => etcd.keys('restart/').length === 2, 'its rival is in line');
      await etcd.crash();
      await etcd.run();
      await once(session, 'extended');
      assert.ok(leadership.isValid());
      // The rival's watch has to have been opened anew.
      await leadership.resign();
      await (await next).resign();
      await Promise.all([session.close(), rival.close()]);
    });
  });
}

/**
 * Waits until its elector breaks.
 *
 * @param {Session} session
 */
async function broken(session) {
  let last = '';
  session.on('trouble', (sentence) => { last = sentence; });
  await eventually(() => /^the elector broke, and is replaced: .*unreachable/.test(last), 'it breaks');
}

/** An elector whose `handle` is, when it is armed, WebAssembly's `unreachable`. */
function trapdoor() {
  // (module (func (export "trap") unreachable))
  const bytes = '0061736d01000000010401600000030201000708010474726170' + '00000a0501030000' + '0b';
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(Buffer.from(bytes, 'hex')));
  const trap = /** @type {() => never} */ (exports.trap);
  const handle = 'incumbent:election/elector@0.1.0#[method]elector.handle';
  const door = {
    armed: false,
    /** @type {typeof openElector} */
    open: (config, mark) => openElector(config, mark, (module, imports) => {
      const instance = new WebAssembly.Instance(module, imports);
      const real = /** @type {Function | undefined} */ (instance.exports[handle]);
      if (!real) return instance;
      const guarded = (/** @type {unknown[]} */ ...values) => (door.armed ? trap() : real(...values));
      return /** @type {any} */ ({ exports: { ...instance.exports, [handle]: guarded } });
    }),
  };
  return door;
}
