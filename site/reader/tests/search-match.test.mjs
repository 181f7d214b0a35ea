// What the search box finds, and in which order.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import '../public/assets/search-match.js';

const { search, wordsOf, pieces, snippet } = globalThis.bookSearch;

const index = {
  pages: [
    ['en/a.html', 'Chapter 8 · PPO'],
    ['zh/b.html', '第 8 章 · 近端策略优化'],
  ],
  sections: [
    [0, '', 'Chapter 8 · PPO', 'Reusing samples. The clipped ratio comes later.'],
    [
      0,
      'sec-8-1',
      '8.1 Importance sampling',
      'A ratio of two probabilities weighs every sample. The word clipped is here once.',
    ],
    [0, 'sec-8-3', '8.3 The clipped objective', 'A bound on what one step may gain.'],
    [1, 'sec-8-3', '8.3 裁剪目标', '目标函数的裁剪（clipping）限制一步的收益，式（8.3）。'],
    [1, 'sec-8-5', '8.5 多轮更新', '同一批样本上做多轮更新，裁剪过的目标会怎样？'],
  ],
};
const hrefs = (query) => search(index, query).map(({ href }) => href);

test('a hit in a title comes before hits in texts', () => {
  assert.deepEqual(hrefs('clipped'), ['en/a.html#sec-8-3', 'en/a.html', 'en/a.html#sec-8-1']);
});

test('a word of its own in a title comes before the same letters in a longer word', () => {
  const sections = [
    [0, 'a', 'Masked sums', ''],
    [0, 'b', 'The mask', ''],
  ];
  assert.deepEqual(
    search({ pages: [['p', 't']], sections }, 'mask').map(({ href }) => href),
    ['p#b', 'p#a'],
  );
});

test('a chapter comes before an entry of the ledger of that name, and the ledger before texts', () => {
  const pages = [
    ['en/reference/sources.html', 'Sources'],
    ['en/chapters/07.html', 'Chapter 7'],
  ];
  const sections = [
    [0, 'src-gae', 'gae', 'A paper.'],
    [1, 'sec-7-1', '7.1 Returns', 'Later comes gae.'],
    [1, 'sec-7-5', '7.5 From TD errors to GAE', 'Sums.'],
  ];
  assert.deepEqual(
    search({ pages, sections }, 'GAE').map(({ href }) => href.split('#')[1]),
    ['sec-7-5', 'src-gae', 'sec-7-1'],
  );
});

test('several words must all be there, in the section or in the title of its page', () => {
  assert.deepEqual(hrefs('ratio clipped'), ['en/a.html', 'en/a.html#sec-8-1']);
  assert.deepEqual(hrefs('ppo bound'), ['en/a.html#sec-8-3']);
  assert.deepEqual(hrefs('ratio banana'), []);
});

test('upper case, full-width letters and surrounding blanks do not matter', () => {
  assert.deepEqual(hrefs('  CLIPPED '), hrefs('clipped'));
  assert.deepEqual(hrefs('ｃｌｉｐｐｅｄ'), hrefs('clipped'));
  assert.deepEqual(hrefs('(8.3)'), ['zh/b.html#sec-8-3']);
});

test('a Chinese word is found inside a sentence, the title first', () => {
  assert.deepEqual(hrefs('裁剪'), ['zh/b.html#sec-8-3', 'zh/b.html#sec-8-5']);
  assert.deepEqual(hrefs('多轮更新'), ['zh/b.html#sec-8-5']);
});

test('a longer Chinese word is found by its pairs of characters when something stands in between', () => {
  const found = (text) => search({ pages: [['p', 't']], sections: [[0, 's', '', text]] }, '策略优化').length;
  assert.equal(found('策略的优化'), 0);
  assert.equal(found('用策略、略优与优化三个词'), 1);
});

test('Chinese and Latin letters written together are words of their own', () => {
  assert.deepEqual(wordsOf('PPO裁剪 clip'), ['ppo', '裁剪', 'clip']);
});

test('an empty query finds nothing', () => {
  assert.deepEqual(search(index, '   '), []);
});

test('no more results than asked for', () => {
  assert.equal(search(index, '8', 2).length, 2);
});

test('pieces mark the hits and lose no character', () => {
  const parts = pieces('Clip, clipped, CLIP', ['clip']);
  assert.equal(parts.map(({ text }) => text).join(''), 'Clip, clipped, CLIP');
  assert.deepEqual(
    parts.filter(({ hit }) => hit).map(({ text }) => text),
    ['Clip', 'clip', 'CLIP'],
  );
});

test('hits that overlap are marked once', () => {
  const parts = pieces('abcabc', ['abc', 'bca']);
  assert.equal(parts.map(({ text }) => text).join(''), 'abcabc');
});

test('a character whose lower case is longer keeps the marks in place', () => {
  const parts = pieces('İİİ clip', ['clip']);
  assert.deepEqual(parts.at(-1), { text: 'clip', hit: true });
});

test('a snippet shows the hit, however far into the text it is', () => {
  const parts = snippet(`${'word '.repeat(200)}needle${' word'.repeat(200)}`, ['needle']);
  assert.ok(parts.some(({ text, hit }) => hit && text === 'needle'));
  assert.ok(parts.map(({ text }) => text).join('').length < 200);
});

test('a query is text, not a pattern', () => {
  assert.deepEqual(hrefs('.*'), []);
  assert.deepEqual(hrefs('[a-z]'), []);
});
