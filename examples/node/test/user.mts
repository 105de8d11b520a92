// What a user writes in TypeScript: it has only to compile, and to be refused where it says so.

import { ElectionError, now, Session, type Leadership } from 'incumbent-node-host';
import { measure } from 'incumbent-node-host/metrics';

export async function use(signal: AbortSignal): Promise<bigint> {
  const session = await Session.connect('etcd://127.0.0.1:2379', { identity: 'worker-1', ttl: 5 });
  const secure = { tls: { ca: 'ca.pem', cert: 'c.pem', key: 'c.key' }, user: 'me', passwordFile: 'password' };
  measure(await Session.connect('etcds://a.example,b.example/team', secure));
  await Session.connect('etcd://a.example', { record: { dir: 'recording', limit: 1 << 20 } });
  // @ts-expect-error a password is never in the program
  await Session.connect('etcd://a.example', { user: 'me', password: 'mine' });
  session.on('endangered', (leadership) => console.log(leadership.validUntil - now()));
  session.on('trouble', (sentence) => console.log(sentence.length));
  const leadership: Leadership = await session.campaign('my-service', { contest: 'race', signal });
  const epoch: bigint = leadership.epoch;
  const found = await session.get('result');
  try {
    await leadership.put('result', new Uint8Array([1]), { modified: found?.modified ?? 0n });
  } catch (error) {
    if (error instanceof ElectionError && error.code === 'stale') return epoch;
  }
  // @ts-expect-error a revision is a bigint
  await leadership.put('result', 'text', { modified: 0 });
  // @ts-expect-error there are two contests
  await session.campaign('my-service', { contest: 'lottery' });
  // @ts-expect-error a valid-until is for comparing, by the clock
  leadership.validUntil = 0n;
  const reason: string = await leadership.lost();
  console.log(reason, leadership.signal.aborted, leadership.isValid());
  const same: string = await leadership.resign();
  console.log(same.length);
  await session.close();
  return epoch;
}
