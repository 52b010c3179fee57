// A script that serves its caller: one JSON object a line on standard input, one answer a line on standard output.
import { createInterface } from 'node:readline';

/** Serve `operations` until standard input ends. An operation that throws answers with its error. */
export async function serve(operations) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { operation, ...options } = JSON.parse(line);
    process.stdout.write(JSON.stringify(await answer(operations[operation], options)) + '\n');
  }
}

async function answer(operation, options) {
  try {
    return { value: (await operation(options)) ?? null };
  } catch (error) {
    return { error: String(error?.stack ?? error) };
  }
}
