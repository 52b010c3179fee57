/**
 * A command line on top of turngate.ts:
 *
 *   node dist/main.js start AGENT TEXT
 *   node dist/main.js list [FILTER]
 *   node dist/main.js approve ID | reject ID [WHY] | respond ID TEXT | edit ID ARGS
 *   node dist/main.js result TURN
 *
 * Connects to TEMPORAL_ADDRESS (localhost:7233) and signs decisions with the name in USER.
 */
import { Client, Connection } from '@temporalio/client';
import { type Approval, decide, pending, pendingOf, RefusedError, startTurn, turnOf, type Verdict } from './turngate.js';

const connection = await Connection.connect({ address: process.env.TEMPORAL_ADDRESS ?? 'localhost:7233' });
const client = new Client({ connection, namespace: process.env.TEMPORAL_NAMESPACE ?? 'default' });
const [command = 'list', ...words] = process.argv.slice(2);

try {
  await run();
} catch (error) {
  if (!(error instanceof RefusedError)) throw error;
  for (const { code, message } of error.refusals) console.error(`refused (${code}): ${message}`);
  process.exitCode = 1;
} finally {
  await connection.close();
}

async function run(): Promise<void> {
  const [first = '', second = ''] = words;
  switch (command) {
    case 'start':
      console.log(await startTurn(client, { agent: first, input: second, requested_by: process.env.USER }));
      break;
    case 'list':
      for await (const approval of pending(client, words[0])) show(approval);
      break;
    case 'result':
      console.log(JSON.stringify(await client.workflow.result(first), null, 2));
      break;
    default:
      await say(first, second);
  }
}

/** A person would have seen the call; this program looks it up, so that the digest is of what it decides about. */
async function say(approvalId: string, text: string): Promise<void> {
  const { name, digest } = await find(approvalId);
  const verdict = read(text, name);
  const [receipt] = await decide(client, { ...verdict, approval_id: approvalId, digest, reviewer: process.env.USER });
  console.log(`${receipt?.approval_id}: ${receipt?.outcome} (${receipt?.status})`);
}

function read(text: string, tool: string): Verdict {
  switch (command) {
    case 'approve':
      return { type: 'approve' };
    case 'reject':
      return { type: 'reject', message: text || undefined };
    case 'respond':
      return { type: 'respond', message: text };
    case 'edit':
      return { type: 'edit', edited_action: { name: tool, args: JSON.parse(text) } };
    default:
      throw new Error(`unknown command ${command}: start, list, approve, reject, respond, edit or result`);
  }
}

async function find(approvalId: string): Promise<Approval> {
  for await (const approval of pendingOf(client, turnOf(approvalId))) {
    if (approval.id === approvalId) return approval;
  }
  throw new Error(`${approvalId} does not wait`);
}

function show({ id, name, args, expires_at, reviewers }: Approval): void {
  const who = reviewers.join(', ') || 'anybody';
  console.log(`${id}  ${name} ${JSON.stringify(args)}  for ${who}${expires_at ? `, until ${expires_at}` : ''}`);
}
