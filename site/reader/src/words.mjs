// The words of the interface, in each language of the book. Those that scripts need are handed over as data attributes.
export const WORDS = {
  en: {
    skip: 'Skip to the text',
    chapters: 'Chapters',
    contents: 'On this page',
    searchHint: 'Search the book',
    noHits: 'Nothing found for',
    hits: 'results',
    dark: 'Dark mode',
    language: 'Language',
    previous: 'Previous',
    next: 'Next',
    pages: 'Previous and next page',
    copy: 'Copy',
    copied: 'Copied',
    scrolls: 'Scrolls sideways',
  },
  zh: {
    skip: '跳到正文',
    chapters: '全书目录',
    contents: '本页目录',
    searchHint: '搜索全书',
    noHits: '没有找到',
    hits: '条结果',
    dark: '深色模式',
    language: '语言',
    previous: '上一页',
    next: '下一页',
    pages: '上一页与下一页',
    copy: '复制',
    copied: '已复制',
    scrolls: '可横向滚动',
  },
};

/** The name of each language in itself, and the word that says what a callout is. */
export const LANGUAGE_NAMES = { en: 'English', zh: '中文' };
export const CALLOUTS = {
  en: { note: 'Note', opening: 'Before you read', info: 'Info', tip: 'Tip', warning: 'Warning', check: 'Check' },
  zh: { note: '说明', opening: '导读', info: '提示', tip: '建议', warning: '警告', check: '检查' },
};
