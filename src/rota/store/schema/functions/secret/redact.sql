-- Returns a text as it may be stored and shown: without credentials and control characters, cut to
-- p_limit, and on one line unless p_lines. The patterns are those of scrub.py. Only a little more
-- of the text is searched than can be shown: in SQL the time grows with the square of the length. A
-- backslash is a plain character, whatever the session's settings are.
create or replace function {schema}.redact(p_text text, p_limit int, p_lines boolean default false)
returns text
language sql immutable parallel safe
set standard_conforming_strings = on
as $$
  select
    case
      when length(clean.text) <= p_limit then clean.text
      else left(clean.text, p_limit - 1) || '…'
    end
  from (
    select
      '(?:passw(?:or)?d|passphrase|pwd|secret|(?:api|access|private|signing|encryption)[_-]?key'
        || '|token|(?<![a-z])pass(?=["''\\]|\s{0,3}=)'
        || '|(?<=[?&])(?:x-[a-z]{1,9}-)?sig(?:nature)?(?==))'
        || '(?:[_-]?(?:access[_-]?)?key(?:_base)?)?[0-9]{0,3}' as name,
      '[a-z]{0,2}"(?:[^"\\]|\\.)*"?'
        || '|[a-z]{0,2}''(?:[^''\\]|\\.)*''?'
        || '|\\"(?:[^"\\]|\\[^"])*(?:\\")?'
        || '|[\w.]{1,100}\((?:"[^"]*"|''[^'']*'')\)' as quoted,
      '[^\s,;&)}\]"''][^\s,;&)}\]]*' as bare,
      '(?=[^\s,;&)}\]"'']*[0-9+/=_$!@#%^~]|[^\s,;&)}\]"'']{20})[^\s,;&)}\]"''][^\s,;&)}\]]*'
        as secretlike
  ) of
  cross join lateral (
    select
      '(?!(?:none|null|true|false)(?!\w)|\*\*\*(?:[\s:,;&)}\]]|$)|(?:[a-z]+[_-])*'
        || of.name || '\s{0,3}[:=]\s)' as value
  ) no
  cross join lateral (
    select regexp_replace(
      left(p_text, 4 * p_limit + 4096),
      '-----BEGIN ([A-Z ]{0,30}PRIVATE KEY)-----(?:[^-]|-(?!-))*'
        || '(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?',
      '(\1 ***)', 'g'
    ) as text
  ) k
  cross join lateral (
    select regexp_replace(
      k.text,
      '(secret_keys(?:\\?["''])?\s{0,3}[:=]\s{0,3}(?:\\?["''])?)'
        || '[a-z0-9_.-]{1,50}=[^\s"''\\)}\]]{8,}',
      '\1***', 'gi'
    ) as text
  ) s
  cross join lateral (
    select regexp_replace(
      s.text,
      '(?<![\w-])((?:-u|--user)["'']?,?[ =]{1,3}["'']?[^\s:"'']{1,100}:)'
        || '(?![0-9]{1,9}(?:\s|$))[^\s"'']+',
      '\1***', 'g'
    ) as text
  ) u
  cross join lateral (
    select regexp_replace(
      u.text,
      '(://)([^\s/?#]*@|[^\s:/?#@]*:(?![0-9]+[/?#])[^\s@"'']*@)',
      '\1***@', 'g'
    ) as text
  ) a
  cross join lateral (
    select regexp_replace(
      a.text,
      '\m([Bb]earer|BEARER|[Bb]asic|BASIC) (?!(?<!Bearer )[a-z]{8,}(?![\w~+/=-]|\.\w)'
        || '|(?:[Aa]uthenticat|[Aa]uthori[sz]|[Cc]redential)[a-z]{0,5}(?![\w~+/=-])'
        || '|(?:[A-Za-z]+[_-])*(?:[Pp]ass(?:w(?:or)?d|phrase)?|PASS(?:W(?:OR)?D|PHRASE)?|[Pp]wd'
        || '|PWD|[Ss]ecret|SECRET|[Tt]oken|TOKEN|[Kk]ey|KEY|[Aa]pi[Kk]ey|APIKEY)'
        || '(?:[_-](?:[Kk]ey|KEY))?[0-9]{0,3}\s{0,3}[:=])[A-Za-z0-9._~+/=-]{8,}',
      '\1 ***', 'g'
    ) as text
  ) b
  cross join lateral (
    select regexp_replace(
      b.text,
      '(authorization(?:\\?["''])?\s{0,3}[:=]\s{0,3}(?:\\?["''])?)'
        || '((?:token|api-?key|key|digest|negotiate|ntlm|hmac|jwt|oauth) )?(?:'
        || of.secretlike || ')',
      '\1\2***', 'gi'
    ) as text
  ) c
  cross join lateral (
    select regexp_replace(
      c.text,
      '((?<!unexpected )(?<!expected )' || of.name || ')((?:\\?["''])?\s{0,3}:\s{0,3})'
        || no.value || '(?:' || of.quoted || '|' || of.secretlike || ')',
      '\1\2***', 'gi'
    ) as text
  ) d
  cross join lateral (
    select regexp_replace(
      d.text,
      '(' || of.name || ')(?!\s{1,3}={1,2}\s{1,3}(?:'
        || '[a-z_][\w.]*\([^()"'']*\)(?![\w~+/=@!#$%^&*-])'
        || '|[a-z_]+(?:\.[a-z_]+)+(?![\w.~+/=@!#$%^&*-])'
        || '|(?:%\(\w+\)s|%s|\$[0-9]{1,3}|:[a-z_]+)(?![\w~+/=@!#$%^&*-])'
        || '))(\s{0,3}={1,2}(?!=)\s{0,3})'
        || no.value || '(?:' || of.quoted || '|' || of.bare || ')',
      '\1\2***', 'gi'
    ) as text
  ) e
  cross join lateral (
    select regexp_replace(
      e.text,
      '(?<![A-Za-z0-9])(?:([sr]k_(?:live|test)_|whsec_|gh[pousr]_|github_pat_)[\w+/=]{8,}'
        || '|(xox[a-z]-|xapp-|glpat-|sk-(?:ant|proj)-|pypi-Ag)[\w-]{8,}|(AKIA|ASIA)[A-Z0-9]{12,}'
        || '|(AIza)[\w-]{20,}|(npm_|hf_)[A-Za-z0-9]{20,}|(SG\.)[\w-]{8,}\.[\w-]{8,}'
        || '|(eyJ)[\w-]{8,}(?:\.[\w-]{4,}){1,4})',
      '\1\2\3\4\5\6\7***', 'g'
    ) as text
  ) f
  cross join lateral (
    select
      case
        when p_lines
          then regexp_replace(
            f.text,
            '[\u0001-\u0008\u000b-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]', '�', 'g'
          )
        else btrim(regexp_replace(
          f.text,
          '[\u0001-\u0020\u007f-\u00a0\u2028-\u202e\u2066-\u2069]+', ' ', 'g'
        ))
      end as text
  ) clean
$$;
