// Any TypeScript client: Temporal's own SDK, with nothing of ours in between.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { serve } from './lines.mjs';

const [address, example] = process.argv.slice(2);
const require = createRequire(`${example}/package.json`);
const { Client, Connection } = await import(pathToFileURL(require.resolve('@temporalio/client')));

const connection = await Connection.connect({ address });
const client = new Client({ connection });

/** Payloads that JSON can't say come as {undefined: true} and {bytes: [...]}. */
const spoken = (spec) =>
  'json' in spec ? spec.json : 'bytes' in spec ? Uint8Array.from(spec.bytes) : undefined;

await serve({
  signal: async ({ turn, name = 'decide', payloads }) =>
    void (await client.workflow.getHandle(turn).signal(name, ...payloads.map(spoken))),
  update: async ({ turn, name = 'decide', payloads }) => {
    try {
      const args = payloads.map(spoken);
      return { value: await client.workflow.getHandle(turn).executeUpdate(name, { args }) };
    } catch (error) {
      const cause = error.cause ?? error;
      return { refused: { error: error.name, message: cause.message, type: cause.type, details: cause.details } };
    }
  },
  query: async ({ turn, name }) => await client.workflow.getHandle(turn).query(name),
});
await connection.close();
