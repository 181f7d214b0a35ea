/** A node of an MDX page that is finished HTML: no later step looks inside. */
export function fragment(type, html) {
  return {
    type,
    name: 'Fragment',
    attributes: [{ type: 'mdxJsxAttribute', name: 'set:html', value: html }],
    children: [],
  };
}
