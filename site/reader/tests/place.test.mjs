// What a build may replace, and what it does with what stopped builds left.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { publish, refusal, retreat, tidy, withoutLinks } from '../lib/place.mjs';

let scratch, website, program;
const at = (name) => path.join(scratch, name);
const read = (name) => readFileSync(at(name), 'utf8');
const gone = spawnSync(process.execPath, ['-e', '']).pid; // of a process that has ended

/** Writes files, each with its own name as text. */
function write(...names) {
  for (const name of names) {
    mkdirSync(path.dirname(at(name)), { recursive: true });
    writeFileSync(at(name), name);
  }
}

/** Writes what marks a folder as a site of the book. */
const writeSite = (name) => write(`${name}/index.html`, `${name}/assets/theme.js`, `${name}/en/chapters/01.html`);

beforeEach(() => {
  scratch = realpathSync(mkdtempSync(path.join(os.tmpdir(), 'place-')));
  [website, program] = [at('repository/website'), at('repository/site/reader')];
  write('repository/website/docs.json', 'repository/site/reader/build.mjs');
});
afterEach(() => rmSync(scratch, { recursive: true }));

test('nothing, an empty folder and an earlier site may be replaced', () => {
  mkdirSync(at('empty'));
  writeSite('site');
  write('site/.DS_Store', 'site/search/zh.js', 'site/images/figures/a-light.svg', 'site/assets/katex/LICENSE');
  for (const name of ['empty', 'site', 'none']) assert.equal(refusal(at(name), website, program), undefined);
});

for (const stranger of ['notes.txt', 'en/notes.md', 'assets/data.csv', 'search/fr.js', '.git/HEAD', 'fr/index.html']) {
  test(`a site in which somebody put ${stranger} is refused by that name`, () => {
    writeSite('site');
    write(`site/${stranger}`);
    const reason = refusal(at('site'), website, program);
    assert.ok(reason.includes(`makes ${stranger.replace(/^(\.git|fr)\/.*/, '$1')},`), reason);
  });
}

test('pages of another site are refused', () => {
  write('other/index.html', 'other/images/a.png', 'other/en/a.html');
  assert.match(refusal(at('other'), website, program), /neither empty nor a site of this book/);
});

test('a file, and a link that leads nowhere, are refused', () => {
  write('file');
  symlinkSync(at('nowhere'), at('link'));
  for (const name of ['file', 'link']) assert.match(refusal(at(name), website, program), /is not a folder/);
});

test('the website, a folder in it and one around it or around the program are refused', () => {
  for (const out of [website, path.join(website, 'new'), at('repository')])
    assert.match(refusal(out, website, program), /overlap/);
  for (const out of [program, path.dirname(program)]) assert.match(refusal(out, website, program), /holds the program/);
});

test('a path through a link is judged by where it leads', () => {
  symlinkSync(at('repository'), at('link'));
  assert.equal(withoutLinks(at('link/website')), website);
  assert.equal(withoutLinks(at('link/new/site')), at('repository/new/site'));
});

test('a site that cannot take its place leaves the one that was there', async () => {
  writeSite('site');
  await assert.rejects(publish(at('none'), at('site')));
  assert.equal(read('site/index.html'), 'site/index.html');
});

test('a build that stops while its site is moved puts the old one back and leaves nothing else', () => {
  writeSite(`site.before-${process.pid}`);
  writeSite(`site.next-${process.pid}`);
  write('building/1/cache');
  retreat(at('building/1'), at('site'));
  assert.match(read('site/index.html'), /before/);
  assert.deepEqual(readdirSync(scratch).sort(), ['building', 'repository', 'site']);
  assert.deepEqual(readdirSync(at('building')), []);
});

test('what ended builds left is removed, and a site that one moved away is put back', () => {
  writeSite(`site.before-${gone}`);
  writeSite(`site.next-${gone}`);
  write(`building/${gone}/cache`, `building/${process.ppid}/cache`, 'building/README');
  tidy(at('building'), at('site'));
  assert.match(read('site/index.html'), /before/);
  assert.deepEqual(readdirSync(scratch).sort(), ['building', 'repository', 'site']);
  assert.deepEqual(readdirSync(at('building')).sort(), [String(process.ppid), 'README']);
});

test('a site in its place is not exchanged for an older one', () => {
  writeSite('site');
  writeSite(`site.before-${gone}`);
  tidy(at('building'), at('site'));
  assert.equal(read('site/index.html'), 'site/index.html');
  assert.ok(!existsSync(at(`site.before-${gone}`)));
});

test('a folder of somebody else that has the name of scratch stays, and so does that of a running build', () => {
  write(`site.before-${gone}/thesis.txt`);
  writeSite(`site.before-${process.ppid}`);
  tidy(at('building'), at('site'));
  assert.ok(existsSync(at(`site.before-${gone}/thesis.txt`)));
  assert.ok(existsSync(at(`site.before-${process.ppid}/index.html`)));
  assert.ok(!existsSync(at('site')));
});
