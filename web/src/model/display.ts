// Names, labels and error texts come from servers that nobody vouches for. Characters that do not show, or that change the order in which
// others show, are written out: `\u{202e}`.

/** A stretch of a text, as it is, or written out. */
export interface Part {
  text: string;
  escaped: boolean;
}

function hidden(code: number): boolean {
  return (
    code < 0x20 ||
    (code >= 0x7f && code <= 0x9f) ||
    code === 0xad || // soft hyphen
    code === 0x61c || // Arabic letter mark
    code === 0x180e ||
    code === 0x200b || // zero width space; 200c and 200d (joiners) belong to words and emoji
    code === 0x200e ||
    code === 0x200f ||
    (code >= 0x2028 && code <= 0x202e) || // separators, embeddings and overrides
    (code >= 0x2060 && code <= 0x206f) || // invisible operators and isolates
    code === 0xfeff ||
    (code >= 0xfff9 && code <= 0xfffb) ||
    (code >= 0xd800 && code <= 0xdfff) || // half of a pair
    (code >= 0xe0000 && code <= 0xe007f) // tags
  );
}

/** The text in stretches, so that what is written out can look different. */
export function displayParts(text: string): Part[] {
  const parts: Part[] = [];
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0;
    const escaped = hidden(code);
    const shown = escaped ? `\\u{${code.toString(16)}}` : character;
    const last = parts[parts.length - 1];
    if (last?.escaped === escaped) {
      last.text += shown;
    } else {
      parts.push({ text: shown, escaped });
    }
  }
  return parts;
}

/** The text, with what does not show written out. */
export function display(text: string): string {
  return displayParts(text)
    .map((part) => part.text)
    .join('');
}
