// Links become relative, and those that lead nowhere are reported.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { relinkPages, resolveLink } from '../lib/links.mjs';

const files = new Set([
  'en/index.html',
  'en/chapters/01-a.html',
  'en/chapters/02 b.html',
  'zh/index.html',
  'images/f.svg',
]);
const ids = new Map([
  ['en/chapters/01-a.html', new Set(['sec-1-1', '节'])],
  ['en/index.html', new Set()],
]);
const from = 'en/chapters/01-a.html';
const resolve = (url) => resolveLink(url, from, files, ids);

test('links from the root become relative to the page', () => {
  assert.deepEqual(resolve('/en/index'), { url: '../index.html' });
  assert.deepEqual(resolve('/en/chapters/01-a#sec-1-1'), { url: '01-a.html#sec-1-1' });
  assert.deepEqual(resolve('/images/f.svg'), { url: '../../images/f.svg' });
});

test('a folder means its index', () => {
  assert.deepEqual(resolve('/zh'), { url: '../../zh/index.html' });
  assert.deepEqual(resolve('/zh/'), { url: '../../zh/index.html' });
});

test('links within the page and relative links are followed too', () => {
  assert.deepEqual(resolve('#sec-1-1'), { url: '#sec-1-1' });
  assert.deepEqual(resolve('../index'), { url: '../index.html' });
});

test('names with blanks and anchors in Chinese are found as they are written in links', () => {
  assert.deepEqual(resolve('/en/chapters/02%20b'), { url: '02%20b.html' });
  assert.deepEqual(resolve('#%E8%8A%82'), { url: '#%E8%8A%82' });
});

test('links to other sites are left alone', () => {
  assert.deepEqual(resolve('https://example.org/a#b'), { url: 'https://example.org/a#b' });
});

test('what leads nowhere is a fault', () => {
  assert.match(resolve('/en/chapters/03-c').fault, /dead link/);
  assert.match(resolve('#sec-9-9').fault, /dead anchor/);
  assert.match(resolve('/en/index#sec-1-1').fault, /dead anchor/);
  assert.match(resolve('javascript:alert(1)').fault, /kind/);
  assert.match(resolve('//example.org/x').fault, /kind/);
});

test('only attributes of tags are links: text that looks like one stays as it is', () => {
  const html = '<p title="href=&quot;/x&quot;">href="/nowhere" and src="/no.png" <a href="/en/index">home</a></p>';
  const { pages, faults } = relinkPages(new Map([[from, html]]), new Set([from, 'en/index.html']));
  assert.deepEqual(faults, []);
  assert.equal(pages.get(from), html.replace('<a href="/en/index">', '<a href="../index.html">'));
});

test('a missing image and a repeated id are reported with their page', () => {
  const html = '<img src="/images/gone.svg"><p id="a"></p><p id="a"></p>';
  const { faults } = relinkPages(new Map([[from, html]]), new Set([from]));
  assert.deepEqual(
    faults.map(({ page }) => page),
    [from, from],
  );
  assert.match(faults[0].fault, /id "a"/);
  assert.match(faults[1].fault, /missing image: \/images\/gone\.svg/);
});
