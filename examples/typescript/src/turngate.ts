/**
 * Turngate from TypeScript: plain JSON over Temporal's own client. Copy this file; nothing else is needed.
 */
import { type Client, WorkflowUpdateFailedError } from '@temporalio/client';
import { randomUUID } from 'node:crypto';

/** A tool call, or a question, that waits for a person. The full object has more fields. */
export interface Approval {
  id: string;
  type: 'tool_approval' | 'question' | 'recovery';
  /** Fingerprint of the call. Send it back, and your decision can't hit another call than the one you saw. */
  digest: string;
  name: string;
  args: Record<string, unknown>;
  description: string;
  question?: unknown;
  tags: string[];
  warnings: string[];
  allowed_decisions: string[];
  reviewers: string[];
  expires_at?: string;
  context: { agent: string; thread_id?: string; turn_id: string; original_input?: string };
}

/** What a person says to it. */
export type Verdict =
  | { type: 'approve' }
  | { type: 'edit'; edited_action: { name: string; args: Record<string, unknown> } }
  | { type: 'reject'; message?: string }
  | { type: 'respond'; message: string }
  | { type: 'answer'; value: unknown };

export type Decision = Verdict & { approval_id: string; digest?: string; reviewer?: string; comment?: string };

export interface Receipt {
  approval_id: string;
  outcome: 'applied' | 'already_resolved' | 'vote_recorded' | 'held';
  status: string;
}

export interface TurnRequest {
  agent: string;
  input: string;
  thread_id?: string;
  requested_by?: string;
  context?: Record<string, unknown>;
}

/** Why a decision was refused; nothing was changed. `code` is for programs, `message` for people. */
export interface Refusal {
  code: string;
  message: string;
  path?: (string | number)[];
  approval_id?: string;
}

export class RefusedError extends Error {
  constructor(readonly refusals: Refusal[]) {
    super(refusals.map((refusal) => refusal.message).join('; '));
  }
}

/** Start a turn and return its id. `client.workflow.result(id)` waits for its end. */
export async function startTurn(client: Client, request: TurnRequest, taskQueue = 'turngate'): Promise<string> {
  const workflowId = `turn-${randomUUID()}`;
  await client.workflow.start('AgentTurn', {
    workflowId,
    taskQueue,
    args: [request],
    workflowIdReusePolicy: 'REJECT_DUPLICATE',
    staticSummary: `${request.agent}: ${request.input}`.slice(0, 150),
  });
  return workflowId;
}

/** List what waits, over all runs. `filter` narrows it, for example `TurngateWaiting = "tool:pay"`. */
export async function* pending(client: Client, filter?: string): AsyncGenerator<Approval> {
  const waiting = `WorkflowType = "AgentTurn" AND ExecutionStatus = "Running" AND TurngateStatus = "waiting"`;
  const query = filter ? `${waiting} AND (${filter})` : waiting;
  for await (const run of client.workflow.list({ query })) {
    yield* pendingOf(client, run.workflowId);
  }
}

/** List what waits in one turn. */
export async function* pendingOf(client: Client, turnId: string): AsyncGenerator<Approval> {
  const handle = client.workflow.getHandle(turnId);
  for (let start: number | null | undefined = 0; start != null; ) {
    const page: { approvals: Approval[]; next?: number | null } = await handle.query('pending', { start });
    yield* page.approvals;
    start = page.next;
  }
}

/**
 * Decide, and hear at once what became of it. Throws RefusedError where nothing was changed.
 *
 * Several decisions for calls of one turn are applied together, or none of them.
 */
export async function decide(client: Client, ...decisions: [Decision, ...Decision[]]): Promise<Receipt[]> {
  const turn = client.workflow.getHandle(turnOf(decisions[0].approval_id));
  try {
    const answer = await turn.executeUpdate<{ receipts: Receipt[] }, [unknown]>('decide', { args: [{ decisions }] });
    return answer.receipts;
  } catch (error) {
    throw refusedError(error) ?? error;
  }
}

/**
 * Leave a decision with the Temporal server: it is kept, also while no worker runs, but nobody says what became of
 * it. A refused one shows up in the query `refused`.
 */
export async function leave(client: Client, decision: Decision): Promise<void> {
  await client.workflow.getHandle(turnOf(decision.approval_id)).signal('decide', decision);
}

/** The id of an approval is that of its turn, and more behind its last slash. */
export function turnOf(approvalId: string): string {
  return approvalId.slice(0, approvalId.lastIndexOf('/'));
}

function refusedError(error: unknown): RefusedError | undefined {
  if (!(error instanceof WorkflowUpdateFailedError)) return undefined;
  const details = (error.cause as { details?: unknown[] } | undefined)?.details;
  const refusals = (details?.[0] as { refusals?: Refusal[] } | undefined)?.refusals;
  return refusals && new RefusedError(refusals);
}
