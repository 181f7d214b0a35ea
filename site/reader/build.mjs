#!/usr/bin/env node
// node build.mjs WEBSITE OUT: builds the static edition of the MDX folder WEBSITE and puts it at OUT once complete.
import { existsSync } from 'node:fs';
import { cp, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { BookFault } from './lib/faults.mjs';
import { readWebsite } from './lib/website.mjs';

const ROOT = path.dirname(fileURLToPath(import.meta.url));

/** The line that a reader of the terminal gets for an error: file, place and reason when they are known. */
function describe(error) {
  if (error instanceof BookFault) return error.faults.join('\n');
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

/** Puts the finished site at `out`: beside it first, then in its place, so that `out` is never half a site. */
async function publish(site, out) {
  const [next, before] = [`${out}.next-${process.pid}`, `${out}.before-${process.pid}`];
  try {
    await cp(site, next, { recursive: true });
    if (existsSync(out)) await rename(out, before);
    await rename(next, out);
  } finally {
    await Promise.all([next, before].map((folder) => rm(folder, { recursive: true, force: true })));
  }
}

async function main([website, out, ...rest]) {
  if (!website || !out || rest.length) throw new BookFault(['usage: node build.mjs WEBSITE OUT']);
  const [from, to] = [path.resolve(website), path.resolve(out)];
  const { faults } = readWebsite(from);
  if (faults.length) throw new BookFault(faults);
  const scratch = path.join(ROOT, '.building', String(process.pid));
  try {
    await runAstro(from, scratch);
    await publish(path.join(scratch, 'site'), to);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

main(process.argv.slice(2)).catch((error) => {
  console.error(describe(error));
  process.exitCode = 1;
});
