// Counts and measures the elections of a process, through prom-client: the metrics of Incumbent's
// library, with the same names and labels.

import { Counter, Gauge, Histogram, register as usual } from 'prom-client';

/**
 * @import { Registry } from 'prom-client'
 * @import { Session } from './session.mjs'
 */

/** The upper bounds of durations, in seconds: from an etcd on this machine to the usual time-out. */
const BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5];
/** How many elections of this process have series of their own. */
const LIMIT = 100;
/** The name that all others share. */
const OTHERS = '(others)';
/** Why a term ends; anything else is a sentence. */
const REASONS = ['resigned', 'expired', 'lease-lost', 'deposed', 'fenced'];

/** The metrics of each registry. @type {WeakMap<Registry<any>, ReturnType<typeof metrics>>} */
const known = new WeakMap();

/**
 * Counts and measures this session from now on. Call it before the first campaign.
 *
 * @param {Session} session
 * @param {Registry<any>} [registry] prom-client's own unless given
 */
export function measure(session, registry = usual) {
  const all = known.get(registry) ?? metrics(registry);
  known.set(registry, all);

  /** @param {string} election */
  const label = (election) => {
    if (!all.elections.has(election)) {
      if (all.elections.size >= LIMIT) return OTHERS;
      all.elections.add(election);
    }
    return election;
  };
  /**
   * @param {string} election
   * @param {number} difference
   */
  const leads = (election, difference) => {
    all.isLeader.inc({ election }, difference);
    all.masterStatus.inc({ name: election }, difference);
  };

  session.on('joined', (name) => {
    leads(label(name), 0);
    all.slowpath.inc({ name: label(name) }, 0);
  });
  session.on('elected', (leadership) => {
    const election = label(leadership.name);
    leads(election, 1);
    if (election !== OTHERS) all.epoch.set({ election }, Number(leadership.epoch));
    all.transitions.inc({ reason: 'elected' });
    leadership.lost().then((reason) => {
      leads(election, -1);
      all.transitions.inc({ reason: REASONS.includes(reason) ? reason : 'other' });
    });
  });
  session.on('endangered', ({ name }) => all.slowpath.inc({ name: label(name) }));
  session.on('answered', (operation, { tag, val }, span) => {
    const seconds = Number(span) / 1e9;
    all.requests.inc({ operation, result: tag === 'ok' ? 'ok' : val.tag });
    all.requestDuration.observe({ operation }, seconds);
    if (operation === 'keep-alive') {
      all.renewals.inc({ result: tag === 'err' ? 'failed' : val.tag === 'renewed' ? 'ok' : 'lost' });
      all.renewalDuration.observe(seconds);
    }
  });
  session.on('fenced', () => all.fenceRejections.inc());
  session.on('replaced', () => all.replacements.inc());
}

/** @param {Registry<any>} registry */
function metrics(registry) {
  const registers = [registry];
  /**
   * @template {string} T
   * @param {string} name
   * @param {string} help
   * @param {T[]} labelNames
   */
  const of = (name, help, ...labelNames) => ({ name, help, labelNames, registers });
  return {
    /** The elections with series of their own. @type {Set<string>} */
    elections: new Set(),
    isLeader: new Gauge(of('incumbent_is_leader', 'How many candidates of this process lead.', 'election')),
    epoch: new Gauge(of('incumbent_epoch', 'The epoch that this process leads, or led last.', 'election')),
    transitions: new Counter(of('incumbent_transitions_total', 'Terms that began, and terms that ended.', 'reason')),
    renewals: new Counter(of('incumbent_renewals_total', 'Renewals of leases, by their result.', 'result')),
    renewalDuration: new Histogram({
      ...of('incumbent_renewal_duration_seconds', 'How long the store took to renew a lease.'), buckets: BUCKETS,
    }),
    requests: new Counter(of('incumbent_store_requests_total', 'Requests to the store, by their result.', 'operation', 'result')),
    requestDuration: new Histogram({
      ...of('incumbent_store_request_duration_seconds', 'How long the store took for a request.', 'operation'), buckets: BUCKETS,
    }),
    fenceRejections: new Counter(of('incumbent_fence_rejections_total', 'Guarded writes that were refused because their term was over.')),
    replacements: new Counter(of('incumbent_elector_replacements_total', 'Electors that broke one of their rules, and were replaced.')),
    masterStatus: new Gauge(of('leader_election_master_status', 'Whether this process leads: 1, or 0 if it does not.', 'name')),
    slowpath: new Counter(of('leader_election_slowpath_total', 'How often the lease could not be renewed at once.', 'name')),
  };
}
