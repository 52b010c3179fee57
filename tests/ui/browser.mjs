// Drives the Temporal UI in a headless Chromium, as a reviewer would: look, copy, send.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import { serve } from './lines.mjs';

const PATIENCE = 30_000;
const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

const profile = await mkdtemp(join(tmpdir(), 'turngate-ui-'));
const context = await chromium.launchPersistentContext(profile, {
  executablePath: process.argv[2],
  headless: true,
  args: FLAGS,
  viewport: { width: 1400, height: 1000 },
  // What moves on a page of the UI costs a machine without a graphics card most of one core.
  reducedMotion: 'reduce',
});
context.setDefaultTimeout(PATIENCE);
const page = context.pages()[0] ?? (await context.newPage());

const seen = (locator) => locator.filter({ visible: true }).first();
const details = page.frameLocator('iframe#user-metadata-current-details');

/** Open a page and wait until it shows a text. */
async function open({ url, shows }) {
  await page.goto(url, { waitUntil: 'domcontentloaded' });
  await seen(page.getByText(shows)).waitFor();
}

/** Return the text of the current details, once it holds `shows` and not `hides`; the key R reads them anew. */
async function readDetails({ shows, hides }) {
  const end = Date.now() + PATIENCE;
  for (let look = 1; ; look++) {
    const text = await details.locator('main').innerText({ timeout: 1000 }).catch(() => '');
    if (text.includes(shows) && !(hides && text.includes(hides))) return text;
    if (Date.now() > end) throw new Error(`the details don't show ${shows}: ${text}`);
    // Now and then: each press leaves a long poll behind, and a browser has six connections to a server. Loading the
    // page anew would cost seconds of processor time.
    if (look % 20 === 5) await page.keyboard.press('r');
    await page.waitForTimeout(200);
  }
}

/** Copy one line of the current details as a person does: three clicks. */
async function copy({ holds }) {
  let line = details.locator('code');
  for (const part of holds) line = line.filter({ hasText: part });
  await line.first().click({ clickCount: 3 });
  return await line.first().evaluate((element) => element.ownerDocument.getSelection().toString());
}

async function openDialog(kind) {
  await seen(page.getByRole('button', { name: 'More Actions' })).click();
  await seen(page.getByRole('menuitem', { name: kind })).click();
  await seen(page.getByTestId(`${kind.toLowerCase()}-select-button`)).click();
  const entries = page.getByRole('option').filter({ visible: true });
  await entries.first().waitFor();
  return entries;
}

const closeDialog = () => page.keyboard.press('Escape');

/** Return the handlers that the dialog offers, with their descriptions. */
async function handlers({ kind }) {
  const found = await (await openDialog(kind)).allInnerTexts();
  await closeDialog();
  return found;
}

/** Send a payload through the dialog. Returns what the UI says, and whether it took it. */
async function send({ kind, name, payload }) {
  const entries = await openDialog(kind);
  await entries.filter({ hasText: new RegExp(`^\\s*${name}\\b`) }).first().click();
  const editor = seen(page.getByRole('textbox', { name: 'Data' }));
  await editor.fill(payload);
  // Leaving the editor reformats the text. The dialog grows and the button moves away from under the mouse, so that
  // a person's first click on Submit only does this, and the second one sends.
  await editor.blur();
  const submit = page.getByTestId('confirm-modal-button').filter({ visible: true });
  const sent = (response) => response.request().method() === 'POST' && response.url().includes(`/signal/${name}`);
  const answered = kind === 'Signal' ? page.waitForResponse(sent) : undefined;
  await submit.click();
  if ((await answered)?.ok()) {
    // Where the run moves on before the UI has drawn the answer, it may leave the dialog of a signal open.
    await submit.waitFor({ state: 'hidden', timeout: 3000 }).catch(() => page.reload({ waitUntil: 'domcontentloaded' }));
    return { taken: true };
  }
  const alert = page.locator('form [role=alert]').filter({ visible: true, hasText: /\S/ });
  await Promise.race([submit.waitFor({ state: 'hidden' }), alert.first().waitFor()]);
  if (!(await submit.isVisible())) return { taken: true };
  const said = (await alert.allInnerTexts()).join('\n');
  return { taken: false, said };
}

await serve({
  open,
  copy,
  details: readDetails,
  handlers,
  send,
  closeDialog,
  leave: async () => void (await page.goto('about:blank')),
  click: async ({ role, name }) => void (await seen(page.getByRole(role, { name })).click()),
  waitFor: async ({ text }) => void (await seen(page.getByText(text)).waitFor()),
  text: async () => await page.locator('body').innerText(),
  resize: async (size) => void (await page.setViewportSize(size)),
  picture: async ({ path }) => {
    // The outline of what has the focus is no part of the page.
    await page.evaluate(() => document.activeElement?.blur());
    await page.screenshot({ path });
  },
});
await context.close();
await rm(profile, { recursive: true, force: true });
