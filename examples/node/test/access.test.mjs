// How a session gets in: TLS, users, and the prefix of its keys.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ElectionError, Session } from '../incumbent/session.mjs';
import { Store } from '../incumbent/store.mjs';
import { Certificates } from './certificates.mjs';
import { Etcd, eventually, freePort, VERSIONS } from './etcd.mjs';

/** A member alone elects itself after a time-out, and a password is hashed less often. */
const QUICK = ['--heartbeat-interval', '10', '--election-timeout', '100', '--bcrypt-cost', '4'];

const folder = mkdtempSync(path.join(os.tmpdir(), 'incumbent-node-access-'));
after(() => rmSync(folder, { recursive: true }));

/**
 * The path of a file with this content.
 *
 * @param {string} name
 * @param {string} content
 */
function file(name, content) {
  const whole = path.join(folder, name);
  writeFileSync(whole, content);
  return whole;
}

/**
 * Fails unless there is no session, for a reason that fits.
 *
 * @param {string} url
 * @param {any} options
 * @param {RegExp} sentence
 * @param {string} [code]
 */
async function refused(url, options, sentence, code = 'unreachable') {
  await assert.rejects(Session.connect(url, options), (error) => {
    assert.ok(error instanceof ElectionError, String(error));
    assert.match(error.message, sentence);
    assert.equal(error.code, code);
    assert.doesNotMatch(String(error.stack), /mine|of no use/);
    return true;
  });
}

test('credentials that cannot be used are refused in a sentence', async () => {
  const url = 'etcds://localhost:1';
  const none = path.join(folder, 'none');
  const empty = file('empty', '');
  const broken = file('broken', '-----BEGIN CERTIFICATE-----\nof no use\n-----END CERTIFICATE-----\n');
  const key = file('key', '-----BEGIN PRIVATE KEY-----\nof no use\n-----END PRIVATE KEY-----\n');
  /** @type {[string, any, RegExp][]} */
  const cases = [
    ['etcd://localhost:1', { tls: { ca: none } }, /^certificates \(`tls`\) are of use with TLS only: write etcds:\/\//],
    [url, { tls: { cert: none } }, /^a certificate goes with its key: give both/],
    [url, { tls: { ca: none } }, /^the CA certificate `tls\.ca` .*none cannot be read: ENOENT/],
    [url, { tls: { ca: empty } }, /^the CA certificate `tls\.ca` .*empty cannot be used: it holds no CERTIFICATE/],
    [url, { tls: { cert: broken, key: empty } }, /^the private key `tls\.key` .*empty cannot be used: it holds no PRIVATE KEY/],
    [url, { tls: { cert: broken, key } }, /broken and the private key `tls\.key` .* cannot be used \(.*\): give a certificate/],
    [url, { tls: { ca: 5 } }, /^CA certificate `tls\.ca`: 5 is not a string/],
    ['etcd://localhost:1', { user: 'me' }, /^a user goes with a password: give both `user` and `passwordFile`/],
    ['etcd://localhost:1', { passwordFile: none }, /^a user goes with a password/],
    ['etcd://localhost:1', { user: 'me', passwordFile: none }, /^the `passwordFile` .*none cannot be read: ENOENT/],
    ['etcd://localhost:1', { user: 'me', passwordFile: empty }, /^the `passwordFile` .*empty cannot be used: its first line is empty/],
    ['etcd://me:mine@localhost:1', {}, /^etcd:\/\/…@localhost:1 holds a user or a password: give them apart/],
  ];
  for (const [to, options, sentence] of cases) await refused(to, options, sentence, 'configuration');
});

for (const version of VERSIONS) {
  describe(`etcd ${version}, with TLS`, () => {
    const certificates = new Certificates();
    const others = new Certificates();
    const tls = { ca: certificates.ca, ...certificates.client };
    /** @type {Etcd} */
    let etcd;
    before(async () => { etcd = await Etcd.start(version, { certificates, more: QUICK }); });
    after(async () => {
      await etcd.stop();
      for (const one of [certificates, others]) one.remove();
    });

    test('an election, with certificates on both sides', async () => {
      const one = await Session.connect(etcd.url, { tls });
      // The first member does not answer.
      const two = await Session.connect(etcd.url.replace('//', `//localhost:${await freePort()},`), { tls });
      const leadership = await one.campaign('secure');
      const next = two.campaign('secure');
      const modified = await leadership.put('secure-result', 'done', { modified: 0n });
      await leadership.resign();
      assert.ok((await next).epoch > leadership.epoch);
      assert.equal((await two.get('secure-result'))?.modified, modified);
      await Promise.all([one.close(), two.close(), (await next).resign()]);
      assert.match(etcd.ctl('get', 'secure-result'), /done/);
    });

    test('without a CA, the system\'s authorities count', async () => {
      const { SSL_CERT_FILE: kept = '' } = process.env;
      process.env.SSL_CERT_FILE = certificates.ca;
      try {
        await (await Session.connect(etcd.url, { tls: certificates.client })).close();
        process.env.SSL_CERT_FILE = others.ca;
        await refused(etcd.url, { tls: certificates.client }, /signed by nobody that we trust/);
      } finally {
        if (kept) process.env.SSL_CERT_FILE = kept;
        else delete process.env.SSL_CERT_FILE;
      }
    });

    test('a refusal says what to correct', async () => {
      await refused(etcd.url, { tls: { ...tls, ca: others.ca } },
        /^localhost:\d+ refuses the connection: its certificate is signed by nobody that we trust: give the CA that signed it as `tls\.ca`$/);
      await refused(etcd.url.replace('localhost', '127.0.0.1'), { tls },
        /its certificate is not for 127\.0\.0\.1: name it in the URL as it is there$/);
      await refused(etcd.url, { tls: { ca: certificates.ca } }, /it wants a certificate of ours: give one/);
      await refused(etcd.url, { tls: { ca: certificates.ca, ...others.client } },
        /it does not take our certificate: give one that its CA has signed/);
      await refused(etcd.url.replace('etcds', 'etcd'), {}, /it speaks TLS: write etcds:\/\/ in place of etcd:\/\/$/);
      certificates.expire();
      await refused(etcd.url, { tls }, /its certificate has expired: renew it/);
    });
  });

  test(`etcd ${version}: below a prefix, there are the same elections as for others`, async (context) => {
    const etcd = await Etcd.start(version, { more: QUICK });
    context.after(() => etcd.stop());
    await refused(etcd.url.replace('etcd', 'etcds'), {}, /it does not speak TLS: write etcd:\/\/ in place of etcds:\/\/$/);
    const session = await Session.connect(`${etcd.url}/team/a//`);
    const leadership = await session.campaign('my-service', { value: 'me' });
    const name = Buffer.from(leadership.key).toString();
    assert.match(name, /^my-service\//, 'the user does not see the prefix');
    assert.deepEqual(etcd.keys(''), [`team/a/${name}`]);
    await leadership.put('data', '1', { modified: 0n });
    assert.match(etcd.ctl('get', 'team/a/data'), /1/);
    assert.equal(`${(await session.get('data'))?.value}`, '1');
    await assert.rejects(leadership.put('', 'no key'), (/** @type {any} */ error) => error.code === 'refused');
    await leadership.delete('data');

    const elect = spawn(path.join(path.dirname(etcd.program), 'etcdctl'),
      [`--endpoints=127.0.0.1:${etcd.port}`, 'elect', 'team/a/my-service', 'other'], { env: { ETCDCTL_API: '3' } });
    context.after(() => elect.kill('SIGKILL'));
    await eventually(() => etcd.keys('team/a/my-service/').length === 2, 'etcdctl waits in the same queue');
    const [next] = await Promise.all([once(elect.stdout, 'data'), leadership.resign()]);
    assert.match(String(next), /^team\/a\/my-service\//);
    const waits = session.campaign('my-service');
    elect.kill('SIGINT');
    assert.ok((await waits).epoch > leadership.epoch, 'it is told when the other one leaves');
    const race = await session.campaign('my-race', { contest: 'race' });
    assert.equal(Buffer.from(race.key).toString(), 'my-race');
    assert.ok(etcd.keys('').includes('team/a/my-race'));
    await Promise.all([(await waits).resign(), race.resign(), session.close()]);
    assert.deepEqual(etcd.keys(''), [], 'nothing is left');
  });
}

// Side by side, because they wait for logins to expire.
describe('with users', { concurrency: true }, () => {
  for (const version of VERSIONS) {
    describe(`etcd ${version}, with users`, { concurrency: false }, () => {
      /** @type {Etcd} */
      let etcd;
      const login = { user: 'me', passwordFile: file(`password-${version}`, 'mine\nnot read\n') };
      before(async () => {
        const key = file(`token-${version}.key`, 'of no use outside of this test');
        const token = `jwt,priv-key=${key},sign-method=HS256,ttl=2s`;
        etcd = await Etcd.start(version, { more: [...QUICK, '--auth-token', token] });
        await (await Session.connect(etcd.url, login)).close(); // A user does no harm yet.
        etcd.enableUsers('me:mine', 'team/');
      });
      after(() => etcd.stop());

      test('logins that expire, or end with a change of users, cost nothing', async () => {
        const one = await Session.connect(`${etcd.url}/team`, login);
        const two = await Session.connect(`${etcd.url}/team`, login);
        const [allowed, elsewhere] = [new Store(`${etcd.url}/team`, login), new Store(etcd.url, login)];
        await Promise.all([allowed.probe(), elsewhere.probe()]);
        const leadership = await one.campaign('my-service');
        await leadership.put('data', '1', { modified: 0n });
        await sleep(2_100);
        // A forbidden key ends a watch all the same.
        /** @type {[Store, RegExp][]} */
        const watched = [[allowed, /^started$/], [elsewhere, /^ended denied$/]];
        for (const [store, tells] of watched) {
          /** @type {any} */
          const told = await new Promise((tell) => store.watch({ id: 1n, key: Buffer.from('w'), prefix: false, since: undefined }, tell));
          assert.match(`${told.tag} ${told.val.tag ?? ''}`.trim(), tells);
          store.close();
        }
        const joined = two.campaign('my-service');
        const modified = await leadership.put('data', '2');
        await eventually(() => etcd.asRoot('get', '--prefix', '--keys-only', 'team/my-service/').match(/team/g)?.length === 2,
          'both are in line');
        // Logins from before a change of the users are too old.
        etcd.asRoot('role', 'add', 'another');
        assert.ok(await leadership.put('data', '3', { modified }) > modified);
        etcd.asRoot('role', 'add', 'and-another');
        assert.equal(`${(await two.get('data'))?.value}`, '3');
        await leadership.resign();
        await (await joined).resign();
        await Promise.all([one.close(), two.close()]);
      });

      test('a user has the rights that etcd gives', async () => {
        const session = await Session.connect(etcd.url, login);
        // Also to read on behind the last key, which is a page of nothing.
        const store = new Store(etcd.url, login);
        const page = { key: Buffer.from('team/'), prefix: true, from: Buffer.from('z'), limit: 0, keysOnly: false };
        const read = await store.ask({ tag: 'read', val: [{ ...page, order: 'by-key' }] }, 5_000);
        assert.deepEqual(/** @type {any} */ (read.val).val?.found, [[]]);
        store.close();
        await assert.rejects(session.get('other/data'), /etcd denies it: etcdserver: permission denied/);
        await assert.rejects(session.campaign('my-service'), (/** @type {any} */ error) => (
          error.code === 'withdrawn' && /permission denied/.test(error.message)));
        await (await session.campaign('team/my-service')).resign();
        await session.close();
      });

      test('a refusal says what to correct', async () => {
        await refused(etcd.url, {}, /refuses the connection: it wants a user: give `user` and `passwordFile`$/);
        await refused(etcd.url, { ...login, passwordFile: file(`wrong-${version}`, 'wrong') },
          /authentication failed, invalid user ID or password: check `user` and `passwordFile`$/);
      });

      test('a new password is read at the next login', async () => {
        const passwordFile = file(`changes-${version}`, 'mine');
        const session = await Session.connect(`${etcd.url}/team`, { ...login, passwordFile });
        writeFileSync(passwordFile, 'newer-than-mine');
        etcd.asRoot('user', 'delete', 'me');
        etcd.asRoot('user', 'add', 'me:newer-than-mine');
        etcd.asRoot('user', 'grant-role', 'me', 'of-the-prefix');
        assert.equal(await session.get('nothing'), undefined);
        // A file that is away for a moment costs no candidacy.
        rmSync(passwordFile);
        etcd.asRoot('role', 'add', 'one-more');
        await assert.rejects(session.get('nothing'), /the `passwordFile` .* cannot be read: ENOENT/);
        const waits = session.campaign('my-service');
        await sleep(100);
        writeFileSync(passwordFile, 'newer-than-mine');
        await (await waits).resign();
        await session.close();
      });
    });
  }
});
