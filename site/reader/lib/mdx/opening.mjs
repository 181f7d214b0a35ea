/** Rehype plugin: marks the box with which a chapter begins, its question and what one needs for it. */
export function markOpening() {
  return (tree, file) => {
    if (!file.data.astro.frontmatter.chapter) return;
    const first = tree.children.find(({ name }) => name === 'Info');
    const before = tree.children.slice(0, tree.children.indexOf(first)).some(({ tagName }) => tagName);
    if (first && !before) first.attributes.push({ type: 'mdxJsxAttribute', name: 'opening', value: 'true' });
  };
}
