#!/bin/sh
# {{ .Values.kept }} "quotes" 'too'	tab, end of line 

  échec: |
&& true

