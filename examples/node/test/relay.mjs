// What stands between a session and its etcd, and can cut the link, with or without a word.

import net from 'node:net';

export class Relay {
  /** @type {Set<net.Socket>} */
  #sockets = new Set();
  #silent = false;
  #server;

  /** @param {number} port of the etcd */
  static async to(port) {
    const relay = new Relay(port);
    await new Promise((listens) => relay.#server.listen(0, '127.0.0.1', () => listens(undefined)));
    return relay;
  }

  /** @param {number} port */
  constructor(port) {
    this.#server = net.createServer((client) => {
      const etcd = net.connect(port, '127.0.0.1');
      for (const [from, to] of /** @type {const} */ ([[client, etcd], [etcd, client]])) {
        this.#sockets.add(from);
        from.on('data', (bytes) => { if (!this.#silent) to.write(bytes); });
        from.on('error', () => {});
        from.on('close', () => {
          to.destroy();
          this.#sockets.delete(from);
        });
      }
    });
  }

  get url() {
    return `etcd://127.0.0.1:${/** @type {net.AddressInfo} */ (this.#server.address()).port}`;
  }

  /** How many connections there are. */
  get connections() {
    return this.#sockets.size / 2;
  }

  /** Cuts all connections; new ones may be made. */
  cut() {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Nothing passes any more, and nobody is told. */
  silence() {
    this.#silent = true;
  }

  close() {
    this.cut();
    this.#server.close();
  }
}
