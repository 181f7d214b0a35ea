// docs.json and the files it lists must agree.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { readWebsite } from '../lib/website.mjs';

/** The faults of a website whose docs.json holds `config` and which has the pages `files`. */
function faultsOf(config, files) {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'website-'));
  try {
    if (config !== undefined)
      writeFileSync(path.join(folder, 'docs.json'), typeof config === 'string' ? config : JSON.stringify(config));
    for (const name of files) {
      mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
      writeFileSync(path.join(folder, name), '');
    }
    return readWebsite(folder).faults;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const listing = (...pages) => ({
  navigation: { languages: [{ language: 'en', groups: [{ group: 'Start', pages }] }] },
});

test('a list that agrees with the files has no faults', () => {
  assert.deepEqual(faultsOf(listing('en/index', 'en/a'), ['en/index.mdx', 'en/a.mdx']), []);
});

test('a page without a file, a file that is not listed and a page listed twice are named', () => {
  assert.match(faultsOf(listing('en/index', 'en/gone'), ['en/index.mdx'])[0], /en\/gone has no file/);
  assert.match(
    faultsOf(listing('en/index'), ['en/index.mdx', 'en/orphan.mdx'])[0],
    /^en\/orphan\.mdx: is not in docs\.json/,
  );
  assert.match(faultsOf(listing('en/index', 'en/index'), ['en/index.mdx'])[0], /listed twice/);
});

test('a docs.json that cannot be used is named', () => {
  assert.match(faultsOf(undefined, [])[0], /no such file/);
  assert.match(faultsOf('{', [])[0], /^docs\.json: /);
  assert.match(faultsOf({}, [])[0], /navigation\.languages/);
  assert.match(faultsOf({ navigation: { languages: [{ language: 'xx', groups: [] }] } }, [])[0], /"xx"/);
  assert.match(faultsOf(listing({ group: 'nested' }), [])[0], /not the name of a page/);
  assert.match(faultsOf(listing('zh/index'), ['zh/index.mdx'])[0], /listed under "en"/);
});
