// What etcd says, sorted; what an operation is on the wire is tested with a real etcd.

import assert from 'node:assert/strict';
import http2 from 'node:http2';
import { after, before, describe, test } from 'node:test';
import { failure, Store } from '../incumbent/store.mjs';
import { Etcd, VERSIONS } from './etcd.mjs';
import { Relay } from './relay.mjs';

/** @import { Operation } from '../component/interfaces/incumbent-election-types.js' */

test('what etcd says is sorted', () => {
  for (const [message, tag] of [
    ['2 UNKNOWN: etcdserver: too many requests', 'unavailable'],
    ['8 RESOURCE_EXHAUSTED: etcdserver: too many requests', 'unavailable'],
    ['14 UNAVAILABLE: etcdserver: no leader', 'unavailable'],
    ['14 UNAVAILABLE: etcdserver: leader changed', 'unavailable'],
    ['14 UNAVAILABLE: etcdserver: request timed out', 'timeout'],
    ['4 DEADLINE_EXCEEDED: context deadline exceeded', 'timeout'],
    ['3 INVALID_ARGUMENT: etcdserver: request is too large', 'invalid'],
    ['8 RESOURCE_EXHAUSTED: grpc: received message larger than max (9 vs. 8)', 'invalid'],
    ['11 OUT_OF_RANGE: etcdserver: too large lease TTL', 'invalid'],
    ['11 OUT_OF_RANGE: something else', 'other'],
    ['8 RESOURCE_EXHAUSTED: etcdserver: mvcc: database space exceeded', 'other'],
    ['7 PERMISSION_DENIED: etcdserver: permission denied', 'denied'],
    ['16 UNAUTHENTICATED: etcdserver: invalid auth token', 'denied'],
    ['3 INVALID_ARGUMENT: etcdserver: user name is empty', 'denied'],
    ['3 INVALID_ARGUMENT: etcdserver: user name not found', 'denied'],
    ['3 INVALID_ARGUMENT: etcdserver: authentication failed, invalid user ID or password', 'denied'],
    ['3 INVALID_ARGUMENT: etcdserver: revision of auth store is old', 'unavailable'],
    ['2 UNKNOWN: auth: revision in header is old', 'unavailable'],
    ['?', 'other'],
  ]) {
    assert.equal(failure(new Error(message)).tag, tag, message);
  }
  assert.deepEqual(failure(new Error('7 PERMISSION_DENIED: etcdserver: permission denied')), {
    tag: 'denied', val: 'etcdserver: permission denied',
  });
});

test('nothing is sent twice, and all of it wants a leader', async () => {
  /** @type {string[]} */
  const asked = [];
  const server = http2.createServer().on('stream', (stream, headers) => {
    asked.push(`${headers[':path']} ${headers.hasleader}`);
    stream.respond({ ':status': 200, 'content-type': 'application/grpc', 'grpc-status': '14' }, { endStream: true });
  });
  await new Promise((listens) => server.listen(0, '127.0.0.1', () => listens(undefined)));
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  const store = new Store(`etcd://127.0.0.1:${port}`);
  const key = Buffer.from('key');
  /** @type {[Operation, string][]} */
  const operations = [
    [{ tag: 'grant', val: { lease: 1n, ttl: 1n } }, 'Lease/LeaseGrant'],
    [{ tag: 'keep-alive', val: 1n }, 'Lease/LeaseKeepAlive'],
    [{ tag: 'claim', val: { key, value: key, lease: 1n } }, 'KV/Txn'],
    [{ tag: 'guarded', val: { guard: { key, epoch: 1n, lease: undefined }, expect: [], mutations: [] } }, 'KV/Txn'],
  ];
  for (const [operation, path] of operations) {
    asked.length = 0;
    assert.deepEqual((await store.ask(operation, 5_000)).val.tag, 'unavailable');
    assert.deepEqual(asked, [`/etcdserverpb.${path} true`]);
  }
  asked.length = 0;
  const ended = await new Promise((tell) => store.watch({ id: 1n, key, prefix: false, since: undefined }, tell));
  assert.equal(ended.val.tag, 'unavailable');
  assert.deepEqual(asked, ['/etcdserverpb.Watch/Watch true']);
  store.close();
  server.close();
});

for (const version of VERSIONS) {
  describe(`etcd ${version}`, () => {
    /** @type {Etcd} */
    let etcd;
    /** @type {Store} */
    let store;
    before(async () => {
      etcd = await Etcd.start(version);
      store = new Store(etcd.url);
    });
    after(async () => {
      store.close();
      await etcd.stop();
    });

    /** @param {Operation} operation */
    const ask = async (operation) => {
      const outcome = await store.ask(operation, 5_000);
      assert.equal(outcome.tag, 'ok', JSON.stringify(outcome.val, (_, value) => (
        typeof value === 'bigint' ? `${value}` : value)));
      return /** @type {any} */ (outcome.val);
    };
    const key = Buffer.from('store/key');
    const value = Buffer.of(0, 0xff);
    const lease = 0x7fff_ffff_ffff_fff1n; // more digits than a number of JavaScript's has

    test('leases', async () => {
      assert.deepEqual(await ask({ tag: 'grant', val: { lease, ttl: 4_000_000_001n } }),
        { tag: 'granted', val: 5_000_000_000n }, 'rounded up');
      assert.deepEqual(await ask({ tag: 'grant', val: { lease, ttl: 5_000_000_000n } }), { tag: 'exists' });
      assert.deepEqual(await ask({ tag: 'keep-alive', val: lease }), { tag: 'renewed', val: 5_000_000_000n });
      assert.match(etcd.ctl('lease', 'list'), /7ffffffffffffff1/);
      assert.deepEqual(await ask({ tag: 'keep-alive', val: 7n }), { tag: 'expired' });
      assert.deepEqual(await ask({ tag: 'revoke', val: 7n }), { tag: 'expired' });
      assert.deepEqual(await ask({ tag: 'claim', val: { key, value, lease: 7n } }), { tag: 'expired' });
    });

    test('the answer to a renewal is waited for as long as the lease lives', async () => {
      const relay = await Relay.to(etcd.port);
      const cut = new Store(relay.url);
      const granted = await cut.ask({ tag: 'grant', val: { lease: 5n, ttl: 2_000_000_000n } }, 5_000);
      assert.equal(granted.tag, 'ok');
      relay.silence();
      const began = performance.now();
      const read = cut.ask({ tag: 'read', val: [] }, 50).then(() => performance.now() - began);
      const renewal = await cut.ask({ tag: 'keep-alive', val: 5n }, 50);
      const took = performance.now() - began;
      assert.deepEqual(renewal.val.tag, 'timeout');
      assert.ok(took >= 1_900 && took < 30_000 && await read < took, `${await read} and ${took}`);
      cut.close();
      relay.close();
    });

    test('claims, reads, guards', async () => {
      const { tag, val: { entry, at } } = await ask({ tag: 'claim', val: { key, value, lease } });
      assert.equal(tag, 'claimed');
      assert.deepEqual(entry, { key, value, lease, created: at, modified: at });
      assert.deepEqual(await ask({ tag: 'claim', val: { key, value: key, lease } }),
        { tag: 'taken', val: { entry, at } });

      const order = /** @type {const} */ ('newest-first');
      const selection = { key: Buffer.from('store/'), prefix: true, order, limit: 0, keysOnly: false };
      const found = async (/** @type {bigint} */ createdBefore) => (
        (await ask({ tag: 'read', val: [{ ...selection, createdBefore }] })).val.found[0]);
      assert.deepEqual(await found(at + 1n), [entry]);
      for (const before of [at, 2n, 1n, 0n]) assert.deepEqual(await found(before), []);
      assert.deepEqual(await ask({ tag: 'read', val: [] }), { tag: 'snapshot', val: { at, found: [] } });

      const guard = { key, epoch: at, lease };
      const put = { tag: /** @type {const} */ ('put'), val: { key: Buffer.from('other'), value } };
      /** @param {object} how */
      const guarded = (how) => ask({
        tag: 'guarded', val: { guard, expect: [], mutations: [put], ...how },
      });
      assert.deepEqual(await guarded({ guard: { ...guard, epoch: at + 1n } }), { tag: 'stale' });
      assert.deepEqual(await guarded({ guard: { ...guard, lease: 7n } }), { tag: 'stale' });
      assert.deepEqual(await guarded({ expect: [{ key: put.val.key, modified: at }] }), { tag: 'conflict' });
      const applied = await guarded({ expect: [{ key: put.val.key, modified: 0n }] });
      assert.deepEqual(applied, { tag: 'applied', val: at + 1n });
      const proclaimed = await guarded({ mutations: [{ tag: 'proclaim', val: key }] });
      const [now] = await found(at + 9n);
      assert.deepEqual(now, { key, value: key, lease, created: at, modified: proclaimed.val });
    });

    test('reads from a key on, page by page, and keys alone', async () => {
      for (const one of ['c', 'a', 'e', 'b', 'd']) etcd.ctl('put', `page/${one}`, one);
      etcd.ctl('put', 'page0', 'behind');
      /** @param {object} [how] */
      const found = async (how) => {
        const selection = {
          key: Buffer.from('page/'), prefix: true, order: /** @type {const} */ ('by-key'), limit: 0,
          keysOnly: false, ...how,
        };
        const { val } = await ask({ tag: 'read', val: [selection, { ...selection, keysOnly: true }] });
        const [whole, keys] = val.found;
        for (const { value, key } of whole) assert.equal(`${value}`, `${key}`.at(-1));
        assert.deepEqual(keys, whole.map((/** @type {any} */ entry) => ({ ...entry, value: Buffer.of() })));
        return keys.map((/** @type {any} */ { key }) => `${key}`.at(-1)).join('');
      };
      const from = (/** @type {string} */ text) => ({ from: Buffer.from(text) });
      assert.equal(await found(), 'abcde');
      assert.equal(await found({ limit: 2 }), 'ab');
      assert.equal(await found({ ...from('page/b\0'), limit: 2 }), 'cd');
      assert.equal(await found({ ...from('page/b'), order: 'oldest-first' }), 'cebd');
      assert.equal(await found({ ...from('page/b'), order: 'newest-first', limit: 1 }), 'd');
      assert.equal(await found(from('')), 'abcde');
      for (const beyond of ['page/e\0', 'page0', 'z']) assert.equal(await found(from(beyond)), '');
      const single = { key: Buffer.from('page/c'), prefix: false };
      assert.equal(await found(single), 'c');
      assert.equal(await found({ ...single, ...from('page/b') }), 'c');
      assert.equal(await found({ ...single, ...from('page/d') }), '');
    });

    test('watches, from now and from the past, and their end', async () => {
      /** @type {any[]} */
      const heard = [];
      /** @type {(value: unknown) => void} */
      let wake = () => {};
      const until = async (/** @type {number} */ length) => {
        while (heard.length < length) await new Promise((resolve) => { wake = resolve; });
      };
      const tell = (/** @type {any} */ change) => {
        heard.push(change);
        wake(undefined);
      };
      const close = store.watch({ id: 1n, key: Buffer.of(0xff), prefix: true }, tell);
      await until(1);
      const [{ tag, val: from }] = heard;
      assert.equal(tag, 'started');
      etcd.ctl('put', 'elsewhere', '');
      const last = Buffer.of(0xff, 0x41);
      const { val } = await ask({ tag: 'claim', val: { key: last, value, lease } });
      await until(2);
      assert.deepEqual(heard[1], { tag: 'put', val: val.entry }, 'of keys up to the last there can be');
      close();

      heard.length = 0;
      const past = store.watch({ id: 2n, key: Buffer.from('elsewhere'), prefix: false, since: from + 1n }, tell);
      await until(2);
      assert.deepEqual(heard.map((change) => change.tag), ['started', 'put']);
      assert.equal(heard[0].val, from);
      assert.equal(heard[1].val.modified, from + 1n);
      etcd.ctl('del', 'elsewhere');
      await until(3);
      assert.deepEqual(heard[2], { tag: 'deleted', val: { key: Buffer.from('elsewhere'), at: from + 3n } });
      past();

      heard.length = 0;
      etcd.ctl('compact', `${from + 3n}`);
      store.watch({ id: 3n, key, prefix: false, since: from }, tell);
      await until(2);
      assert.deepEqual(heard[1], { tag: 'ended', val: { tag: 'compacted', val: from + 3n } });
    });
  });
}
