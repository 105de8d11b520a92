// One member of etcd: the connection to it, and the login there.

import { InterceptingCall } from '@grpc/grpc-js';
import { noop } from 'cockatiel';
import { Etcd3 } from 'etcd3';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * @import { CallOptions, Interceptor } from '@grpc/grpc-js'
 * @import { Access } from './access.mjs'
 */

/** How long etcd may take to answer a login, in milliseconds. */
const LOGIN = 5_000;
/** How often a request is sent: etcd's users may change, and end a login, once more meanwhile. */
const LOGINS = 3;
/**
 * etcd's words when it refuses a login. It has not carried out the request then. A login is "old" if
 * etcd's users have changed since.
 */
const REFUSED = /^16 |invalid auth token|revision (of auth store|in header) is old|user name (is empty|not)/;

/** A connection that sends nothing twice by itself, and logs in when it is first used. */
export class Member {
  #access;
  /** @type {Promise<string> | undefined} */
  #login;

  /**
   * @param {string} host `HOST:PORT`
   * @param {Access} access
   */
  constructor(host, access) {
    this.host = host;
    this.#access = access;
    /** For requests that need no login. */
    this.etcd = connection(host, access);
  }

  /**
   * Sends a request with a login. If etcd refuses the login, it has not carried out the request,
   * which is sent again with another login.
   *
   * @template T
   * @param {number} timeout how long to wait for the answer, in milliseconds
   * @param {(etcd: Etcd3, options: CallOptions) => Promise<T>} send
   * @returns {Promise<T>}
   */
  async request(timeout, send) {
    const deadline = Date.now() + timeout;
    let login = this.login();
    for (let left = LOGINS - 1; ; left -= 1) {
      const token = await before(deadline, login);
      try {
        return await send(this.etcd, { deadline, ...withToken(token) });
      } catch (error) {
        const { message } = /** @type {Error} */ (error);
        if (this.#access.user === undefined || !REFUSED.test(message)) throw error;
        if (left === 0) throw new Error(`14 UNAVAILABLE: ${message}`);
        login = this.loggedInAgain(login);
      }
    }
  }

  /**
   * Logs in again after etcd has refused a login, unless another request has done so already.
   *
   * @param {Promise<string>} refused
   */
  loggedInAgain(refused) {
    if (this.#login === refused) this.#login = undefined;
    return this.login();
  }

  /** Logs in if needed, and gives etcd's token; '' if there is no user. */
  login() {
    if (this.#login) return this.#login;
    const login = this.#logIn();
    this.#login = login;
    login.catch(() => {
      if (this.#login === login) this.#login = undefined;
    });
    return login;
  }

  async #logIn() {
    const { user: name } = this.#access;
    if (name === undefined) return '';
    const password = await this.#access.password();
    try {
      const options = { deadline: Date.now() + LOGIN };
      return (await this.etcd.auth.authenticate({ name, password }, options)).token;
    } catch (error) {
      // As etcdctl does: a user does no harm where etcd has none.
      if (/authentication is not enabled/.test(/** @type {Error} */ (error).message)) return '';
      throw error;
    }
  }

  close() {
    this.etcd.close();
  }
}

/**
 * @template T
 * @param {number} deadline
 * @param {Promise<T>} wanted
 */
async function before(deadline, wanted) {
  const over = new AbortController();
  const late = sleep(deadline - Date.now(), undefined, { signal: over.signal }).then(() => {
    throw new Error('4 DEADLINE_EXCEEDED: etcd did not answer the login in time');
  });
  late.catch(() => {});
  try {
    return await Promise.race([wanted, late]);
  } finally {
    over.abort();
  }
}

/**
 * @param {string} host
 * @param {Access} access
 */
function connection(host, { certificates }) {
  return new Etcd3({
    hosts: [`${certificates ? 'https' : 'http'}://${host}`],
    credentials: certificates && {
      rootCertificate: certificates.ca, certChain: certificates.cert, privateKey: certificates.key,
    },
    // etcd3 would ask again by itself; a claim or a write must never be sent twice.
    faultHandling: { host: () => noop, global: noop },
    defaultCallOptions: withToken(''),
    grpcOptions: {
      // So would gRPC, or have DNS tell it to.
      'grpc.enable_retries': 0,
      'grpc.service_config_disable_resolution': 1,
      // A dead link is noticed by pings; etcd hangs up on more than one in 5 s.
      'grpc.keepalive_time_ms': 10_000,
      'grpc.keepalive_timeout_ms': 3_000,
      'grpc.enable_http_proxy': 0,
      'grpc.initial_reconnect_backoff_ms': 100,
      'grpc.max_reconnect_backoff_ms': 1_000,
      // Others may have put large values where candidates are.
      'grpc.max_receive_message_length': -1,
    },
  });
}

/**
 * The call options of a request.
 *
 * @param {string} token '' for none
 * @returns {{ interceptors: Interceptor[] }}
 */
export function withToken(token) {
  return {
    interceptors: [(options, next) => new InterceptingCall(next(options), {
      start(metadata, listener, begin) {
        // A member that has lost its leader then says so, and does not keep us waiting.
        metadata.set('hasleader', 'true');
        if (token) metadata.set('token', token);
        begin(metadata, {
          onReceiveStatus(status, tell) {
            // etcd3 would send the request again and again, with the same token.
            tell({ ...status, details: status.details.replace('etcdserver: invalid auth', 'invalid auth') });
          },
        });
      },
    })],
  };
}
