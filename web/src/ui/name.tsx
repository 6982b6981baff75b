import { displayParts } from '../model/display';

/** A text that comes from elsewhere: characters that do not show are written out, and its direction stays within it. */
export function Name({ text }: { text: string }) {
  return (
    <bdi>
      {displayParts(text).map((part, index) =>
        part.escaped ? (
          <span key={index} class="escaped">
            {part.text}
          </span>
        ) : (
          part.text
        ),
      )}
    </bdi>
  );
}
