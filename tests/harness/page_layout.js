// What is wrong with the layout of the page, as sentences: see page_layout.py.
([slack, target, phone]) => {
  const faults = [];
  const box = (node) => node.getBoundingClientRect();
  const isVisible = (node) => node.checkVisibility() && box(node).width > 0;
  const name = (node) => `${node.closest('[id]')?.id}: ${(node.textContent || node.value || '').trim().slice(0, 40)}`;
  const width = document.documentElement.scrollWidth;
  if (width > innerWidth) faults.push(`page ${width} wide, window ${innerWidth}`);
  for (const svg of document.querySelectorAll('.chart svg')) {
    const outer = box(svg), place = svg.closest('[id]').id;
    const texts = [...svg.querySelectorAll('text')].filter((text) => {
      const seen = getComputedStyle(text);
      return text.textContent.trim() && box(text).width > 0 && seen.opacity !== '0' && seen.visibility !== 'hidden';
    });
    for (const axis of svg.querySelectorAll('.role-axis-label')) {
      const labels = [...axis.querySelectorAll('text')].map((text) => [text.textContent, getComputedStyle(text).opacity !== '0']);
      const drawn = labels.filter(([words, isDrawn]) => words && isDrawn).map(([words]) => words);
      if (new Set(drawn).size < drawn.length) faults.push(`${place}: an axis repeats a label: ${drawn.join(', ')}`);
      // Numbers between others are left out where room is short. A row that lost its name cannot be read.
      for (const [words, isDrawn] of labels) if (!isDrawn && /[a-z]{3}/i.test(words)) faults.push(`${place}: “${words}” is not shown`);
    }
    for (const [number, text] of texts.entries()) {
      const one = box(text);
      if (one.left < outer.left - slack || one.right > outer.right + slack) faults.push(`${place}: “${text.textContent}” is cut off`);
      for (const later of texts.slice(number + 1)) {
        const other = box(later);
        const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
        const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
        if (across > -slack && down > slack) faults.push(`${place}: “${text.textContent}” touches “${later.textContent}”`);
      }
    }
  }
  if (!phone) return faults;
  for (const wide of document.querySelectorAll('.wide'))
    if (isVisible(wide) && wide.scrollWidth > wide.clientWidth + slack) faults.push(`table “${wide.ariaLabel}” ${wide.scrollWidth} wide, room ${wide.clientWidth}`);
  for (const node of document.querySelectorAll('a, button, input, select, summary, label')) {
    if (!isVisible(node) || node.matches('.skip, .unseen, dd a, p:not(.crumbs) a, label:not(:has(input))')) continue;
    const touched = box(node.closest('label') ?? node);
    if (Math.min(touched.width, touched.height) < target) faults.push(`${node.localName} “${name(node)}” is ${Math.round(touched.width)} × ${Math.round(touched.height)}`);
  }
  return [...new Set(faults)];
}
