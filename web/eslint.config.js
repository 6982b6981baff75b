import tseslint from 'typescript-eslint';

// Names come from untrusted servers, so nothing may parse them as HTML.
const html = ['innerHTML', 'outerHTML', 'insertAdjacentHTML', 'dangerouslySetInnerHTML'];

export default tseslint.config(
  { ignores: ['dist', 'node_modules', 'src/api/schema.d.ts', 'eslint.config.js', 'scripts'] },
  ...tseslint.configs.recommendedTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      eqeqeq: 'error',
      'no-eval': 'error',
      'no-restricted-syntax': [
        'error',
        ...html.flatMap((name) => [
          { selector: `MemberExpression[property.name="${name}"]`, message: `${name} reads text as HTML.` },
          { selector: `JSXAttribute[name.name="${name}"]`, message: `${name} reads text as HTML.` },
        ]),
      ],
      '@typescript-eslint/consistent-type-imports': 'error',
    },
  },
);
