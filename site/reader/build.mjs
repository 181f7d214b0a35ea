#!/usr/bin/env node
// node build.mjs WEBSITE OUT: builds the static edition of the MDX folder WEBSITE and puts it at OUT once complete.
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { BookFault } from './lib/faults.mjs';
import { publish, refusal, retreat, tidy, withoutLinks } from './lib/place.mjs';
import { readWebsite } from './lib/website.mjs';

const ROOT = path.dirname(fileURLToPath(import.meta.url));
const BUILDING = path.join(ROOT, '.building');

/** The line that a reader of the terminal gets for an error: file, place and reason when they are known. */
function describe(error) {
  if (error instanceof BookFault) return error.faults.join('\n');
  if (error.code === 'ERR_MODULE_NOT_FOUND')
    return `${error.message}\n  packages are missing: npm ci --prefix ${ROOT} installs them`;
  const { file, line, column } = error.loc ?? {};
  const place = [file, line, column].filter(Boolean).join(':');
  return `${place ? place + ': ' : ''}${error.reason ?? error.message}${error.hint ? '\n  ' + error.hint : ''}`;
}

/** Runs Astro with all that it writes inside `scratch`, which is below ROOT because it looks for packages there. */
async function runAstro(website, scratch) {
  process.env.ASTRO_TELEMETRY_DISABLED = '1';
  process.env.BOOK_WEBSITE = website;
  process.env.BOOK_CACHE = path.join(scratch, 'cache');
  process.env.BOOK_OUT = path.join(scratch, 'site');
  process.chdir(ROOT);
  const { build } = await import('astro');
  await build({ root: ROOT, logLevel: 'silent' });
}

/** Ends the process by the signal it got, as if it had not been caught, once nothing of the build is left. */
function onSignal(leave) {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    process.once(signal, () => {
      try {
        leave();
      } finally {
        process.kill(process.pid, signal);
      }
    });
  }
}

/** The two folders as the system knows them, once it is certain that the second may be replaced. */
function folders([website, out, ...rest]) {
  if (!website || !out || rest.length) throw new BookFault(['usage: node build.mjs WEBSITE OUT']);
  const [from, to] = [website, out].map((folder) => withoutLinks(path.resolve(folder)));
  const { faults } = readWebsite(from);
  if (faults.length) throw new BookFault(faults);
  tidy(BUILDING, to);
  refuse(from, to);
  return { from, to };
}

/** Stops the build when `to` holds anything that may not be replaced. */
function refuse(from, to) {
  const reason = refusal(to, from, ROOT);
  if (reason) throw new BookFault([reason]);
}

async function main(args) {
  const { from, to } = folders(args);
  const scratch = path.join(BUILDING, String(process.pid));
  onSignal(() => retreat(scratch, to));
  try {
    await runAstro(from, scratch);
    refuse(from, to); // again: a minute has passed
    await publish(path.join(scratch, 'site'), to);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

main(process.argv.slice(2)).catch((error) => {
  console.error(describe(error));
  process.exitCode = 1;
});
