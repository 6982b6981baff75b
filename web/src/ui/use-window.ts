import { useSignal } from '@preact/signals';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { windowOf, type Window } from '../model/virtual';

/** Tracks the visible rows of a scrolling element whose rows have the same height. */
export function useWindow(rowHeight: number, rows: number) {
  const element = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const height = useSignal(600);
  useLayoutEffect(() => {
    const target = element.current;
    if (!target) return;
    const measure = (): void => {
      height.value = target.clientHeight;
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(target);
    return () => { observer.disconnect(); };
  }, []);
  const view: Window = windowOf(top.value, height.value, rowHeight, rows);
  const onScroll = (): void => {
    top.value = element.current?.scrollTop ?? 0;
  };
  return { element, view, height: height.value, onScroll };
}
