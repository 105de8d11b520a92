// The metrics, as Prometheus takes them.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Registry } from 'prom-client';
import { openElector } from '../incumbent/component.mjs';
import { measure } from '../incumbent/metrics.mjs';
import { Session } from '../incumbent/session.mjs';
import { Etcd, eventually } from './etcd.mjs';

const root = new URL('../../../', import.meta.url);
const promtool = process.env.INCUMBENT_PROMTOOL ?? fileURLToPath(new URL('.tools/prometheus/promtool', root));
const registry = new Registry();

/** @param {string} series */
async function value(series) {
  const line = (await registry.metrics()).split('\n').find((line) => line.startsWith(`${series} `));
  return Number(line?.slice(series.length + 1));
}

test('terms, renewals, requests and faults are counted', async (context) => {
  const etcd = await Etcd.start('3.5');
  context.after(() => etcd.stop());
  let isArmed = false;
  /** @type {typeof openElector} */
  const open = (config, now) => {
    const elector = openElector(config, now);
    const handle = elector.handle.bind(elector);
    elector.handle = (...step) => {
      if (isArmed) throw new Error('it broke');
      return handle(...step);
    };
    return elector;
  };
  const session = await Session.connect(etcd.url, { ttl: 2 });
  measure(session, registry);
  const other = await Session.connect(etcd.url, { open });
  measure(other, registry);
  assert.equal(await value('incumbent_fence_rejections_total'), 0, 'what has not happened yet is 0');
  const first = await session.campaign('one');
  const series = { leads: 'incumbent_is_leader{election="one"}', slow: 'leader_election_slowpath_total{name="one"}' };
  assert.equal(await value(series.leads), 1);
  assert.equal(await value('incumbent_epoch{election="one"}'), Number(first.epoch));
  assert.equal(await value(series.slow), 0);
  await eventually(() => value('incumbent_renewals_total{result="ok"}'), 'it is extended');
  etcd.ctl('del', Buffer.from(first.key).toString());
  assert.equal(await first.lost(), 'deposed');
  await assert.rejects(first.put('key', ''), /the term is over/);
  assert.equal(await value(series.leads), 0);
  await first.resign();

  const second = await session.campaign('one');
  etcd.process?.kill('SIGSTOP');
  assert.equal(await second.lost(), 'expired');
  etcd.process?.kill('SIGCONT');
  assert.equal(await value(series.slow), 1);
  await (await other.campaign('two')).resign();
  const third = await other.campaign('two');
  isArmed = true;
  await assert.rejects(third.put('key', ''), /no answer/);
  assert.match(await third.lost(), /the elector broke/);
  isArmed = false;
  await third.resign();
  await Promise.all([second.resign(), session.close(), other.close()]);

  for (const [series, wanted] of Object.entries({
    'incumbent_is_leader{election="one"}': 0,
    'leader_election_master_status{name="one"}': 0,
    'incumbent_transitions_total{reason="elected"}': 4,
    'incumbent_transitions_total{reason="deposed"}': 1,
    'incumbent_transitions_total{reason="expired"}': 1,
    'incumbent_transitions_total{reason="resigned"}': 1,
    'incumbent_transitions_total{reason="other"}': 1,
    'incumbent_store_requests_total{operation="claim",result="ok"}': 4,
    'incumbent_fence_rejections_total': 1,
    'incumbent_elector_replacements_total': 1,
  })) {
    assert.equal(await value(series), wanted, series);
  }
  const took = 'incumbent_store_request_duration_seconds';
  const claims = await value(`${took}_sum{operation="claim"}`) / await value(`${took}_count{operation="claim"}`);
  assert.ok(claims > 0.000_01 && claims < 1, `${claims}`);
  assert.equal(await value('incumbent_renewal_duration_seconds_bucket{le="+Inf"}'),
    await value(`${took}_count{operation="keep-alive"}`));

  session.emit('answered', 'keep-alive', { tag: 'err', val: { tag: 'timeout' } }, 1n);
  session.emit('answered', 'keep-alive', { tag: 'ok', val: { tag: 'expired' } }, 1n);
  for (const result of ['failed', 'lost']) assert.ok(await value(`incumbent_renewals_total{result="${result}"}`) >= 1, result);
  assert.ok(await value('incumbent_store_requests_total{operation="keep-alive",result="timeout"}') >= 1);

  for (let number = 0; number < 200; number += 1) session.emit('joined', `bounded-${number}`);
  const own = (await registry.metrics()).match(/^incumbent_is_leader\{.*$/gm)?.length;
  assert.equal(own, 101, 'series are bounded');
  assert.equal(await value('incumbent_is_leader{election="(others)"}'), 0);
});

test('the names, meanings and buckets are those of the library', async () => {
  const text = await registry.metrics();
  const described = readFileSync(new URL('host/incumbent/src/metrics.rs', root), 'utf8')
    .matchAll(/describe_(\w+)!\(\s*"(\w+)",\s*"([^"]+)"/g);
  const wanted = [...described].flatMap(([, kind, name, help]) => [`# HELP ${name} ${help}`, `# TYPE ${name} ${kind}`]);
  assert.equal(wanted.length, 22);
  assert.deepEqual(text.split('\n').filter((line) => line.startsWith('#')).sort(), wanted.sort());
  const [, buckets = ''] = /BUCKETS.*=\s*\[(.*)\]/.exec(readFileSync(new URL('host/cli/src/http/metrics.rs', root), 'utf8')) ?? [];
  const found = [...text.matchAll(/^incumbent_renewal_duration_seconds_bucket\{le="([\d.]+)"/gm)].map(([, bound]) => Number(bound));
  assert.deepEqual(found, buckets.split(',').map(Number));
});

test('Prometheus takes them', { skip: !existsSync(promtool) && `there is no ${promtool}` }, async () => {
  const input = await registry.metrics();
  assert.equal(execFileSync(promtool, ['check', 'metrics'], { input, stdio: 'pipe' }).toString(), '');
});
