// Mintlify's strict build of a website folder: what `mint validate` runs once it has downloaded its client, which this
// step does not need.
//   node validate.mjs WEBSITE
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { prebuild } from '@mintlify/prebuild';
import { pages, relative, report, said, website } from './pages.mjs';

const COLOURS = /\u001b\[[0-9;]*m/g;
const PARSING = /parsing error (?<page>\S+?):(?<line>\d+):\d+ - (?<message>.*)/s;
const FRONTMATTER = /^(?<page>\S+?): (?<message>There is a syntax error in your frontmatter.*)/s;
const WARNED = /^(?:warning|error) - (?<message>.*)/s;

/** A finding from a line that the build said, or nothing. */
function problem(line) {
  const found = (PARSING.exec(line) ?? FRONTMATTER.exec(line) ?? WARNED.exec(line))?.groups;
  if (!found) return [];
  const page = found.page ? relative(found.page) : 'docs.json';
  return [{ page, line: found.line ? Number(found.line) : null, message: found.message.trim() }];
}

// The build writes into the current folder what the client would read.
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'agentrl-validate-'));
process.chdir(scratch);
let failed = null;
try {
  await prebuild(website, { strict: true, skipStaticFiles: true, disableOpenApi: true });
} catch (error) {
  failed = String(error?.message ?? error);
} finally {
  process.chdir(os.tmpdir());
  fs.rmSync(scratch, { recursive: true, force: true });
}
const problems = said.flatMap((words) => problem(words.replace(COLOURS, '')));
if (failed !== null && problems.length === 0) problems.push({ page: 'docs.json', line: null, message: failed });
report({ pages: pages().length, problems });
