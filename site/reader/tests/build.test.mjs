// The whole build over a website of four pages, and the faults that only a whole build can see.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { refusal } from '../lib/place.mjs';

const BUILD = fileURLToPath(new URL('../build.mjs', import.meta.url));
const scratch = mkdtempSync(path.join(os.tmpdir(), 'reader-'));
after(() => rmSync(scratch, { recursive: true }));

const CHAPTER = `---
title: "Chapter 1 · A Title"
sidebarTitle: "1 · A Title"
chapter: "01"
---

See [the index](/en/index) and [below](#eq-1-1).

<div id="sec-1-1">

## 1.1 A section

</div>

<div id="eq-1-1">

$$
x^2 \\tag{1.1}
$$

</div>

<Frame>
  <img className="block dark:hidden" src="/images/f-light.svg" alt="A figure" />
  <img className="hidden dark:block" src="/images/f-dark.svg" alt="A figure" />
</Frame>

<Accordion title="Solution">

<div id="sol-one"></div>

\`\`\`python agentrl.one
print("href='/nowhere'")
\`\`\`

\`\`\`text Output
href='/nowhere'
\`\`\`

</Accordion>
`;

/** Writes a website and returns its folder; `change` may plant a fault in its files. */
function website(name, change = (files) => files) {
  const folder = path.join(scratch, name);
  const group = (language) => ({
    language,
    groups: [{ group: 'All', pages: [`${language}/index`, `${language}/chapters/01-a`] }],
  });
  const files = change({
    'docs.json': JSON.stringify({ name: 'The Book', navigation: { languages: ['en', 'zh'].map(group) } }),
    'en/index.mdx': '---\ntitle: "The Book"\n---\n\nBegin with [Chapter 1](/en/chapters/01-a#sec-1-1).\n',
    'zh/index.mdx': '---\ntitle: "书"\n---\n\n[第 1 章](/zh/chapters/01-a)\n',
    'en/chapters/01-a.mdx': CHAPTER,
    'zh/chapters/01-a.mdx': CHAPTER.replaceAll('/en/', '/zh/'),
    'images/f-light.svg': '<svg xmlns="http://www.w3.org/2000/svg"/>',
    'images/f-dark.svg': '<svg xmlns="http://www.w3.org/2000/svg"/>',
  });
  for (const [file, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(folder, file)), { recursive: true });
    writeFileSync(path.join(folder, file), text);
  }
  return folder;
}

/** Runs the build from a folder that has nothing to do with it. */
function build(folder, out) {
  return spawnSync(process.execPath, [BUILD, folder, out], { cwd: scratch, encoding: 'utf8' });
}

const replace = (file, from, to) => (files) => ({ ...files, [file]: files[file].replace(from, to) });

test('a sound website becomes a site whose links are relative and lead somewhere', () => {
  const out = path.join(scratch, 'site');
  const { status, stderr } = build(website('sound'), out);
  assert.equal(stderr, '');
  assert.equal(status, 0);
  const html = readFileSync(path.join(out, 'en/chapters/01-a.html'), 'utf8');
  const links = [...html.matchAll(/<[^>]* (?:href|src)="([^"#]+)/g)].map(([, url]) => url);
  assert.ok(links.length > 10);
  for (const url of links) assert.ok(existsSync(path.join(out, 'en/chapters', url)), url);
  assert.match(html, /<html lang="en"/);
  assert.match(readFileSync(path.join(out, 'zh/chapters/01-a.html'), 'utf8'), /<html lang="zh-Hans"/);
  assert.match(readFileSync(path.join(out, 'search/en.js'), 'utf8'), /1\.1 A section/);
  assert.deepEqual(
    readdirSync(scratch).filter((name) => name.startsWith('site.')),
    [],
  );
  assert.equal(refusal(out, path.join(scratch, 'sound'), path.dirname(BUILD)), undefined);
});

test('a folder of somebody else is refused before anything is built, and stays', () => {
  const out = path.join(scratch, 'thesis');
  mkdirSync(out);
  writeFileSync(path.join(out, 'thesis.txt'), 'precious');
  const { status, stderr } = build(website('for-thesis'), out);
  assert.equal(status, 1);
  assert.match(stderr, /thesis: is not replaced, since no build of this site makes thesis\.txt/);
  assert.deepEqual(readdirSync(out), ['thesis.txt']);
});

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  const skip = os.platform() === 'win32';
  test(`a build that is stopped by ${signal} leaves no scratch folder`, { skip }, async () => {
    const folders = [website(`stop-${signal}`), path.join(scratch, `stopped-${signal}`)];
    const running = spawn(process.execPath, [BUILD, ...folders]);
    const ended = new Promise((resolve) => running.on('exit', (code, by) => resolve(by ?? code)));
    const own = path.join(path.dirname(BUILD), '.building', String(running.pid));
    while (!existsSync(own) && running.exitCode === null) await pause(5);
    running.kill(signal);
    assert.equal(await ended, signal);
    assert.ok(!existsSync(own));
    assert.deepEqual(
      readdirSync(scratch).filter((name) => name.startsWith('stopped-')),
      [],
    );
  });
}

/** Builds a website with planted faults over an old site; the old site must stay. Returns what was reported. */
function reportOf(name, plant) {
  const out = path.join(scratch, `${name}-site`);
  mkdirSync(path.join(out, 'assets'), { recursive: true });
  writeFileSync(path.join(out, 'assets', 'theme.js'), 'old');
  const { status, stderr } = build(website(name, plant), out);
  assert.equal(status, 1);
  assert.deepEqual(readdirSync(out, { recursive: true }), ['assets', path.join('assets', 'theme.js')]);
  return stderr;
}

test('all faults of links, images and ids are reported with their files, and the old site stays', () => {
  const report = reportOf('links', (files) => {
    files = replace('en/index.mdx', '01-a#sec-1-1', '01-b')(files);
    files = replace('zh/index.mdx', '01-a', '01-a#sec-9')(files);
    files = replace('zh/chapters/01-a.mdx', 'f-dark', 'gone')(files);
    return replace('en/chapters/01-a.mdx', 'sol-one', 'eq-1-1')(files);
  });
  assert.match(report, /^en\/index\.mdx: dead link: \/en\/chapters\/01-b$/m);
  assert.match(report, /^zh\/index\.mdx: dead anchor: .*#sec-9$/m);
  assert.match(report, /^zh\/chapters\/01-a\.mdx: missing image: .*gone\.svg$/m);
  assert.match(report, /^en\/chapters\/01-a\.mdx: the id "eq-1-1" is used more than once$/m);
});

test('a fault inside a page is reported with its file and line, and the old site stays', () => {
  const report = reportOf('page', replace('en/chapters/01-a.mdx', 'x^2', '\\frac{x'));
  assert.match(report, /en\/chapters\/01-a\.mdx:\d+:\d+: bad LaTeX/);
});

test('a page that is not in docs.json is reported, and the old site stays', () => {
  const report = reportOf('orphan', (files) => ({ ...files, 'en/b.mdx': '' }));
  assert.match(report, /^en\/b\.mdx: is not in docs\.json$/m);
});

test('without its packages the build says how they are installed', () => {
  const reader = path.join(scratch, 'reader-alone');
  for (const part of ['build.mjs', 'lib', 'package.json'])
    cpSync(path.join(path.dirname(BUILD), part), path.join(reader, part), { recursive: true });
  const { status, stderr } = spawnSync(process.execPath, [path.join(reader, 'build.mjs'), website('alone'), 'o'], {
    cwd: scratch,
    encoding: 'utf8',
  });
  assert.equal(status, 1);
  assert.match(stderr, /npm ci --prefix .*reader-alone/);
});

test('too few arguments are an error that says what is expected', () => {
  const { status, stderr } = spawnSync(process.execPath, [BUILD], { encoding: 'utf8' });
  assert.equal(status, 1);
  assert.match(stderr, /WEBSITE OUT/);
});
