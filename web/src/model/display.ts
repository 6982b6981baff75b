// Escapes names, labels and error texts, because they come from untrusted servers. Characters that
// are invisible, or that change the order of others, become `\u{202e}` and the like.

/** Part of a text, literal or escaped. */
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

/** Splits a text into parts, so that escaped characters can look different. */
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

/** Returns the text with invisible characters escaped. */
export function display(text: string): string {
  return displayParts(text)
    .map((part) => part.text)
    .join('');
}
